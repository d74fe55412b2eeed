"""Samples, means and rates in the answers of the HTTP API."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused

SPAN = "lengths_age=10&lengths_incr=1&msg_rates_age=10&msg_rates_incr=1&data_rates_age=10&data_rates_incr=1"
SPAN += "&node_stats_age=10&node_stats_incr=1"


@pytest.fixture(scope="module", autouse=True)
def filled(managed: Broker) -> Iterator[shardmq.Connection]:
    """A queue with three messages, and somebody who may see another virtual host alone."""
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.exchange_declare("in", "fanout")
        channel.queue_bind("work", "in", "")
        for _ in range(3):
            channel.basic_publish("in", "", b"body")
        with connection.channel() as other:
            other.queue_declare("unasked", durable=True)
            other.basic_publish("", "unasked", b"body")
        connection.vhost_put("other")
        connection.user_put("guest2", "secret", tags=["management"])
        connection.permission_put("guest2", "other", ".*", ".*", ".*")
        yield connection


def until_sampled(browser: Browser, path: str, *inside: str, least: int = 1) -> list[Any]:
    """The samples at a place of an answer, as soon as the newest is so large."""
    end = time.monotonic() + 20
    while True:
        found = browser.get(path)
        for step in inside:
            found = found[step]
        assert {"rate", "avg", "avg_rate", "samples"} <= found.keys()
        samples = list(found["samples"])
        if samples and samples[0]["sample"] >= least:
            return samples
        assert time.monotonic() < end, found


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/overview", ("queue_totals", "messages_details")),
        ("/overview", ("message_stats", "publish_details")),
        ("/overview", ("churn_rates", "connection_created_details")),
        ("/queues/%2F/work", ("messages_ready_details",)),
        ("/queues/%2F/work", ("message_stats", "publish_details")),
        ("/exchanges/%2F/in", ("message_stats", "publish_in_details")),
        ("/vhosts/%2F", ("messages_details",)),
    ],
)
def test_what_somebody_looks_at_has_samples(admin: Browser, path: str, inside: tuple[str, ...]) -> None:
    newest = until_sampled(admin, f"{path}?{SPAN}", *inside)[0]
    assert newest["sample"] >= 1
    assert abs(newest["timestamp"] / 1000 - time.time()) < 15


def test_connections_channels_and_the_node_have_samples(admin: Browser) -> None:
    name = admin.get("/connections")[0]["name"]
    assert admin.get("/connections")[0]["recv_oct"] > 0
    assert until_sampled(admin, f"/connections/{name.replace(' ', '%20')}?{SPAN}", "recv_oct_details")[0]["sample"] > 0
    channel = admin.get("/channels")[0]
    assert channel["message_stats"]["publish"] == 3
    assert until_sampled(admin, f"/nodes/{admin.get('/overview')['node']}?{SPAN}", "mem_used_details")
    node = admin.get("/nodes")[0]
    assert node["disk_free"] > 0
    assert 0 < node["fd_used"] < node["fd_total"]


def test_a_busy_queue_has_samples_of_before_anybody_asked(admin: Browser) -> None:
    path = f"/overview?{SPAN}"
    newest = until_sampled(admin, path, "queue_totals", "messages_details", least=4)[0]["timestamp"]
    while until_sampled(admin, path, "queue_totals", "messages_details")[0]["timestamp"] == newest:
        time.sleep(0.2)  # queues are read behind the totals
    kept = admin.get(f"/queues/%2F/unasked?{SPAN}")["messages_details"]["samples"]
    assert 1 in [each["sample"] for each in kept]


def test_totals_are_of_what_the_caller_may_see(managed: Broker, admin: Browser) -> None:
    assert until_sampled(admin, f"/overview?{SPAN}", "queue_totals", "messages_details", least=4)
    with Browser(managed.management_url, "guest2", "secret") as other:
        found = other.get(f"/overview?{SPAN}")["queue_totals"]["messages_details"]["samples"]
    assert {each["sample"] for each in found} <= {0}


@pytest.mark.parametrize("query", ["lengths_age=x&lengths_incr=5", "msg_rates_age=6000&msg_rates_incr=1"])
@pytest.mark.parametrize("path", ["/overview", "/queues", "/queues/%2F/work", "/exchanges"])
def test_spans_that_make_no_sense_are_refused(admin: Browser, path: str, query: str) -> None:
    with pytest.raises(Refused, match="bad_request"):
        admin.get(f"{path}?{query}")


def test_a_reset_forgets_all_samples_and_no_counts(admin: Browser) -> None:
    until_sampled(admin, f"/overview?{SPAN}", "queue_totals", "messages_details", least=4)
    at = time.time()
    assert admin.ask("DELETE", "/reset") is None
    found = admin.get(f"/overview?{SPAN}")
    assert all(each["timestamp"] / 1000 > at - 1 for each in found["queue_totals"]["messages_details"]["samples"])
    assert found["message_stats"]["publish"] == 4
    with pytest.raises(Refused, match="no node"):
        admin.ask("DELETE", "/reset/nobody")


def test_lists_are_what_is_kept_for_small_charts(admin: Browser, filled: shardmq.Connection) -> None:
    path = "/shardmq/samples/queues/%2F?name=idle&name=nobody&lengths_age=10&lengths_incr=1"
    channel = filled.channel()
    channel.queue_declare("idle", durable=True)
    none = {"messages": [], "publish": [], "deliver_get": [], "ack": []}
    assert admin.get(path)["queues"] == [{"name": "idle", **none}, {"name": "nobody", **none}]
    channel.basic_publish("", "idle", b"")
    end = time.monotonic() + 20
    while True:
        admin.get("/queues/%2F?page=1&page_size=100")
        found = admin.get(path)
        idle, nobody = found["queues"]
        if any(idle["messages"]):
            break
        assert time.monotonic() < end, found
    assert (found["step"], len(idle["messages"]), len(idle["ack"])) == (1, 11, 11)
    assert abs(found["newest"] / 1000 - time.time()) < 3
    assert nobody == {"name": "nobody", **none}
    for words in ("?" + "&".join(f"name={number}" for number in range(101)), "?name=idle&lengths_age=x"):
        with pytest.raises(Refused, match="bad_request"):
            admin.get(f"/shardmq/samples/queues/%2F{words}")
    with pytest.raises(Refused, match="404"):
        admin.get("/shardmq/samples/queues/nowhere?name=idle")
