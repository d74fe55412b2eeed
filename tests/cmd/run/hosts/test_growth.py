"""Shards are added to a broker on two hosts while it runs: clients notice nothing, and new queues are on them."""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import PublishRefused, ShardmqError
from tests.hosts.members import Etcd

from .several import SeveralHosts, wait_for

Parsed = Callable[..., Any]
PAUSE_SECONDS = 10.0
"""Publishing stands still for no longer: not at all by itself, and what a machine adds that runs other tests."""

REST_SECONDS = 0.02
"""Of those who give shards something to do: as much as is a load, and no more."""

OLD_SHARDS = ("shard-0", "shard-1")
OLD = tuple(f"old-{number}" for number in range(6))


@contextlib.contextmanager
def closing(hosts: SeveralHosts) -> Iterator[SeveralHosts]:
    try:
        yield hosts
    finally:
        hosts.close()
        print(hosts.last_words())


@pytest.fixture(scope="module")
def hosts(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeveralHosts]:
    """Hosts of which no load moves a shard."""
    folder = tmp_path_factory.mktemp("growing")
    with closing(SeveralHosts(folder, f"{etcd.url}/growing", "ab", shards=2, idle_cores=100.0)) as hosts:
        yield hosts


@pytest.fixture
def uneven(etcd: Etcd, tmp_path: Path) -> Iterator[SeveralHosts]:
    """Hosts of which one leads two shards, and where small loads count."""
    with closing(SeveralHosts(tmp_path, f"{etcd.url}/uneven", "ab", shards=3, idle_cores=0.005)) as hosts:
        yield hosts


class Publisher(threading.Thread):
    """Publishes numbers to the old queues in turn, one after the other, each once the one before is confirmed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._is_over = threading.Event()
        self.confirmed: list[int] = []
        self.refused: list[str] = []
        self.pause_max = 0.0

    def run(self) -> None:
        with shardmq.connect(self._url, timeout=30.0) as connection:
            channel = connection.channel()
            number, last = 0, time.monotonic()
            while not self._is_over.is_set():
                try:
                    channel.basic_publish("", OLD[number % len(OLD)], b"%d" % number)
                    self.confirmed.append(number)
                except PublishRefused as refusal:
                    self.refused.append(str(refusal))
                now = time.monotonic()
                self.pause_max, last = max(self.pause_max, now - last), now
                number += 1

    def goes_on(self) -> None:
        known = len(self.confirmed)
        wait_for(lambda: len(self.confirmed) > known + 100, "publishing goes on")

    def close(self) -> None:
        self._is_over.set()
        self.join()


def shards_of(parsed: Parsed, url: str, *names: str) -> dict[str, int]:
    """Where queues are."""
    rows = parsed("queue", "list", "--url", url)
    return {row["name"]: row["shard"] for row in rows if not names or row["name"] in names}


def terms(parsed: Parsed, join: str) -> dict[str, int]:
    """Of the shards that were there from the beginning."""
    return {row["shard"]: row["term"] for row in parsed("shard", "list", "--join", join) if row["shard"] in OLD_SHARDS}


@pytest.fixture
def publisher(hosts: SeveralHosts) -> Iterator[Publisher]:
    publisher = Publisher(hosts.url)
    yield publisher
    if publisher.is_alive():
        publisher.close()


def add_two(hosts: SeveralHosts, parsed: Parsed, refused: Callable[..., str]) -> None:
    """Add shards 2 and 3, at first without keys for them."""
    said = refused("shard", "add", "2")
    assert re.search(
        r"no shard was added: host '([ab])': .* lacks 4 keys, as that of \1.shard-2; where the others were made, "
        "`shardmq keys hosts a b",
        said,
    ), said
    assert [row["shard"] for row in parsed("shard", "list")] == ["coordinator", "shard-0", "shard-1"]
    hosts.make_keys(4)
    assert parsed("shard", "add", "2") == {
        "ok": True,
        "shards": 4,
        "added": ["shard-2", "shard-3"],
    }
    rows = {row["shard"]: row for row in parsed("shard", "list")}
    assert [*rows] == ["coordinator", *(f"shard-{number}" for number in range(4))]
    assert {rows["shard-2"]["primary"], rows["shard-3"]["primary"]} == {"a", "b"}


def declare_until_used(channel: shardmq.Channel, parsed: Parsed, url: str) -> list[str]:
    """Declare queues with a message each until the new shards have some; returns their names."""
    names: list[str] = []
    while not {2, 3} <= {*shards_of(parsed, url, *names).values()}:
        names.append(f"new-{len(names)}")
        channel.queue_declare(names[-1], durable=True)
        channel.basic_publish("", names[-1], b"first")
    return names


def test_shards_are_added_under_load_and_new_queues_and_partitions_use_them(
    hosts: SeveralHosts,
    publisher: Publisher,
    parsed: Parsed,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHARDMQ_JOIN", hosts.join)
    url = hosts.url
    with shardmq.connect(url, timeout=30.0) as connection:
        channel = connection.channel()
        for name in OLD:
            channel.queue_declare(name, durable=True)
        parsed("topic", "declare", "events", "--partitions", "2", "--url", url)
        before = shards_of(parsed, url)
        assert {*before.values()} == {0, 1}
        elected = terms(parsed, hosts.join)
        publisher.start()
        publisher.goes_on()
        add_two(hosts, parsed, refused)
        publisher.goes_on()
        names = declare_until_used(channel, parsed, url)
        parsed("topic", "extend", "events", "8", "--url", url)
        publisher.goes_on()
        publisher.close()

        after = shards_of(parsed, url)
        assert {name: shard for name, shard in after.items() if name in before} == before
        assert {2, 3} <= {shard for name, shard in after.items() if name.startswith("events")}
        # A machine that stands still for a second has shards elected anew, and that refuses what is under way.
        assert publisher.refused == [] or terms(parsed, hosts.join) != elected
        assert publisher.pause_max < PAUSE_SECONDS
        assert [bytes(channel.basic_get(name, auto_ack=True).body) for name in names] == [b"first"] * len(names)
        counts = {row["name"]: row["ready"] for row in parsed("queue", "list", "--url", url)}
        assert sum(counts[name] for name in OLD) == len(publisher.confirmed)


def test_status_has_the_shards_that_were_added(hosts: SeveralHosts, parsed: Parsed) -> None:
    groups = {row["shard"]: row for row in parsed("shard", "list", "--join", hosts.join)}
    table = parsed("status", "--url", hosts.url)
    processes = {row["process"]: row for row in table["processes"]}
    assert {f"{groups[name]['primary']}.{name}" for name in groups if name != "coordinator"} <= {*processes}
    assert {processes[name]["shards_reached"] for name in ("a.gateway-0", "b.gateway-0")} == {4}
    assert {row["group"] for row in table["groups"]} == {*groups}
    for name in "ab":
        assert hosts.said(name, "grown")[0]["text"] == "added shard-2, shard-3; the broker has 4 shards now"


def test_queues_stay_where_they_are_when_another_host_leads_the_coordinator(
    hosts: SeveralHosts, parsed: Parsed
) -> None:
    before = shards_of(parsed, hosts.url)
    (heir,) = {*hosts.addresses} - {parsed("shard", "list", "--join", hosts.join)[0]["primary"]}
    parsed("shard", "transfer", "coordinator", heir, "--join", hosts.join)
    with shardmq.connect(hosts.url, timeout=30.0) as connection:
        connection.channel().queue_declare("later", durable=True)
    after = shards_of(parsed, hosts.url)
    assert after.pop("later") in range(4)
    assert after == before


def test_two_shards_with_much_to_do_on_one_host_are_spread(uneven: SeveralHosts, parsed: Parsed) -> None:
    def leaders() -> dict[str, str]:
        rows = parsed("shard", "list", "--join", uneven.join)
        return {row["shard"]: row["primary"] for row in rows if row["shard"] != "coordinator"}

    def publish(name: str) -> None:
        with shardmq.connect(uneven.url, timeout=60.0) as connection:
            publisher = connection.channel().publisher(window=20)  # so that its shard commits often
            while not is_over.is_set():
                for _ in range(200):
                    publisher.publish("", name, b"something to do")
                with contextlib.suppress(PublishRefused):  # its shard is handed over just then
                    publisher.flush()
                if time.monotonic() < rests_until:
                    is_over.wait(REST_SECONDS)

    def are_spread() -> bool:
        with contextlib.suppress(AssertionError):  # etcd may not answer in time on a busy machine
            now = leaders()
            return len({now[shard] for shard in busy}) == 2
        return False

    before = leaders()
    busy = next(shards for host in "ab" if len(shards := [name for name in before if before[name] == host]) > 1)[:2]
    with shardmq.connect(uneven.url, timeout=60.0) as connection:
        for number in range(30):
            connection.channel().queue_declare(f"queue-{number}", durable=True)
    places = shards_of(parsed, uneven.url)
    names = [next(name for name, number in places.items() if f"shard-{number}" == shard) for shard in busy]
    is_over = threading.Event()
    rests_until = time.monotonic() + 60  # on a busy machine shards with rests get too little of it to count as a load
    publishers = [threading.Thread(target=publish, args=(name,)) for name in names for _ in range(2)]
    try:
        for publisher in publishers:
            publisher.start()
        wait_for(are_spread, "the two are led by two hosts", 300.0)
    finally:
        is_over.set()
        for publisher in publishers:
            publisher.join()


def test_a_broker_on_one_machine_is_started_with_more_shards_and_not_with_fewer_than_have_queues(
    tmp_path: Path, parsed: Parsed
) -> None:
    broker = Broker(tmp_path / "data", shards=1)
    try:
        broker.start()
        with shardmq.connect(broker.url) as connection:
            connection.channel().queue_declare("before", durable=True)
        broker.stop()
        broker.shards = 2
        broker.start()
        with shardmq.connect(broker.url) as connection:
            for number in range(16):
                connection.channel().queue_declare(f"later-{number}", durable=True)
        shards = shards_of(parsed, broker.url)
        assert shards.pop("before") == 0
        assert {*shards.values()} == {0, 1}
        broker.stop()
        broker.shards = 1
        with pytest.raises(ShardmqError, match="on shard 1, but only 1 shard was asked for; start with --shards 2"):
            broker.start()
    finally:
        broker.close()
