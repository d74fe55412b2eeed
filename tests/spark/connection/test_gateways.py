"""Which gateway of a URL a task takes first."""

import socket
from collections import Counter

import pytest

from shardmq.client.api.url import parse_all
from shardmq.spark.connection import gateways
from shardmq.spark.connection.gateways import ANY, Route, ordered

FAR = "shardmq://198.51.100.1,198.51.100.2,198.51.100.3/"
"""Documentation's addresses, which no machine has."""


def names(url: str, route: Route = ANY) -> list[str]:
    return [str(address) for address in ordered(parse_all(url), route)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_tasks_share_the_gateways_evenly(count: int) -> None:
    url = f"shardmq://{','.join(f'198.51.100.{number}' for number in range(1, count + 1))}/"
    firsts = Counter(names(url, Route(turn))[0] for turn in range(4 * count))
    assert [*firsts.values()] == [4] * count


def test_every_gateway_is_in_the_order_once() -> None:
    for turn in range(5):
        for attempt in range(5):
            found = names(FAR, Route(turn, attempt))
            assert sorted(found) == names(FAR), found


def test_a_second_attempt_begins_with_another_gateway() -> None:
    assert names(FAR, Route(1, 0))[0] != names(FAR, Route(1, 1))[0]
    near_first = "shardmq://198.51.100.1,127.0.0.1/"
    assert names(near_first, Route(0, 1))[0] == "198.51.100.1:5672"


def test_the_machines_own_gateways_come_first() -> None:
    url = "shardmq://198.51.100.1,127.0.0.1:5673,198.51.100.2,[::1]:5674/"
    assert names(url)[:2] == ["127.0.0.1:5673", "::1:5674"]
    assert names(url, Route(turn=1)) == ["::1:5674", "127.0.0.1:5673", "198.51.100.2:5672", "198.51.100.1:5672"]
    assert names(url, Route(is_spread=True))[0] == "198.51.100.1:5672"


def test_the_gateway_of_the_host_that_leads_comes_before_all() -> None:
    url = "shardmq://127.0.0.1:5672,198.51.100.1,198.51.100.2/"
    assert [names(url, Route(turn, wanted="198.51.100.2:5672"))[0] for turn in range(3)] == ["198.51.100.2:5672"] * 3
    same_host = "shardmq://127.0.0.1:5672,127.0.0.1:5673/"
    assert names(same_host, Route(wanted="127.0.0.1:5673"))[0] == "127.0.0.1:5673"
    with_tls = "shardmqs://127.0.0.1,198.51.100.2:5671/"
    assert names(with_tls, Route(wanted="198.51.100.2:5672"))[0] == "198.51.100.2:5671"


@pytest.mark.parametrize("wanted", ["", "198.51.100.9:5672", "not an address", "a.invalid:1", "[::1"])
def test_what_the_url_does_not_name_is_not_dialled(wanted: str) -> None:
    assert names(FAR, Route(1, wanted=wanted)) == names(FAR, Route(1))


def test_a_single_gateway_needs_no_names_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "_ips", None)
    assert names("shardmq://broker.example/", Route(3, 2, "198.51.100.1:5672")) == ["broker.example:5672"]


def test_a_name_that_is_not_known_is_like_any_other() -> None:
    assert sorted(names("shardmq://broker.invalid,198.51.100.1/")) == ["198.51.100.1:5672", "broker.invalid:5672"]


def test_a_machine_knows_its_own_addresses() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback's")
        own = probe.getsockname()[0]
    assert names(f"shardmq://198.51.100.1,{own}/")[0] == f"{own}:5672"
