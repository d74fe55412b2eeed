"""A watcher learns the newest values whatever befalls etcd, and is never told of an older one after a newer."""

import re
import urllib.request
from collections.abc import Iterator

import pytest

from shardmq.replication.etcd.errors import OutcomeUnknown
from shardmq.replication.etcd.messages import PutAnswer, delete_request, put_request, range_request
from shardmq.replication.etcd.watching.looks import LOOK_SECONDS, Looks
from shardmq.replication.etcd.watching.watched_prefix import Change
from shardmq.replication.etcd.watching.watcher import Watcher
from shardmq.runtime.clock import boottime
from tests.hosts.members import Etcd

from .loop import Asker

PREFIX = b"/watched/"


class Witness:
    """What a watcher tells, checked to go forward."""

    def __init__(self, asker: Asker) -> None:
        self.values: dict[bytes, bytes] = {}
        self.told = 0
        self._revisions: dict[bytes, int] = {}
        self._asker = asker
        self.watcher = Watcher(asker.client, Looks(asker.client), PREFIX, self.take)

    def take(self, changes: list[Change]) -> None:
        self.told += 1
        for change in changes:
            assert change.revision > self._revisions.get(change.key, 0)
            self._revisions[change.key] = change.revision
            if change.value is None:
                del self.values[change.key]
            else:
                self.values[change.key] = change.value

    def learns(self, key: str, value: str | None) -> None:
        name = PREFIX + key.encode()
        self._asker.until(lambda: self.values.get(name) == (value.encode() if value is not None else None))


@pytest.fixture
def witness(asker: Asker) -> Iterator[Witness]:
    """A watcher that has read what there is."""
    witness = Witness(asker)
    asker.until(lambda: witness.told)
    yield witness
    witness.watcher.close()


@pytest.fixture
def writer(etcd: Etcd) -> Iterator[Asker]:
    """Somebody else, who asks other members first than the watcher."""
    hosts = ",".join(f"127.0.0.1:{member.port}" for member in reversed(etcd.members))
    with Asker(f"etcd://{hosts}") as writer:
        yield writer


def write(writer: Asker, key: str, value: str) -> int:
    """Write a key, again until it is answered; returns its revision."""
    while True:
        outcome = writer.ask(put_request(PREFIX + key.encode(), value.encode()), seconds=2.0)
        if isinstance(outcome, PutAnswer):
            return outcome.header.revision
        assert isinstance(outcome, OutcomeUnknown)  # it waits for an election


def test_what_is_written_and_deleted_is_told_by_the_stream(witness: Witness, writer: Asker) -> None:
    revision = write(writer, "a", "1")
    witness.learns("a", "1")
    writer.ask(delete_request(PREFIX + b"a", revision))
    witness.learns("a", None)
    write(writer, "a", "2")
    witness.learns("a", "2")
    writer.ask(put_request(b"/watched", b"it is not below the prefix"))
    write(writer, "b", "1")
    witness.learns("b", "1")
    assert b"/watched" not in witness.values


def test_each_member_may_be_killed_and_come_back(etcd: Etcd, witness: Witness, writer: Asker) -> None:
    for member in etcd.members:
        member.kill()
        write(writer, "rolling", member.name)
        witness.learns("rolling", member.name)
        member.start()
        etcd.wait()


def test_compaction_under_a_watcher_makes_it_read_again(etcd: Etcd, witness: Witness, writer: Asker) -> None:
    gone = write(writer, "gone", "1")
    witness.learns("gone", "1")
    etcd.members[0].kill()  # whose stream it has; it does not look while this test does not turn it
    for number in range(5):
        write(writer, "compacted", str(number))
    writer.ask(delete_request(PREFIX + b"gone", gone))
    revision = write(writer, "compacted", "last")
    etcd.members.reverse()
    try:
        etcd.control("compaction", str(revision))
    finally:
        etcd.members.reverse()
        etcd.members[0].start()
        etcd.wait()
    witness.learns("compacted", "last")
    witness.learns("gone", None)
    write(writer, "compacted", "afterwards")
    witness.learns("compacted", "afterwards")


def test_a_frozen_member_keeps_nobody_from_the_news(etcd: Etcd, witness: Witness, writer: Asker) -> None:
    write(writer, "frozen", "before")
    witness.learns("frozen", "before")
    etcd.members[0].freeze()
    try:
        write(writer, "frozen", "meanwhile")
        witness.learns("frozen", "meanwhile")
        write(writer, "frozen", "later")
        witness.learns("frozen", "later")
    finally:
        etcd.members[0].thaw()
    write(writer, "frozen", "after")
    witness.learns("frozen", "after")


def test_the_majority_may_go_and_come_back(etcd: Etcd, witness: Witness, writer: Asker) -> None:
    write(writer, "majority", "before")
    witness.learns("majority", "before")
    for member in etcd.members[1:]:
        member.kill()
    confirmed = witness.watcher.confirmed
    etcd.members[1].start()  # a majority again, with another one than before
    write(writer, "majority", "after")
    witness.learns("majority", "after")
    etcd.members[2].start()
    etcd.wait()
    witness.learns("majority", "after")
    assert witness.watcher.confirmed >= confirmed


def test_a_watcher_tells_how_fresh_its_knowledge_is(witness: Witness, asker: Asker) -> None:
    confirmed = witness.watcher.confirmed
    assert confirmed > 0
    asker.until(lambda: witness.watcher.confirmed > confirmed)
    assert witness.watcher.confirmed - confirmed >= LOOK_SECONDS / 2
    assert asker.ask(range_request(b"k")).header.revision >= witness.watcher.revision


def test_one_reading_a_second_is_for_all_watchers(etcd: Etcd, asker: Asker, writer: Asker) -> None:
    looks = Looks(asker.client)
    told: dict[bytes, list[bytes | None]] = {prefix: [] for prefix in (b"/one/", b"/two/", b"/three/")}
    watchers = [
        Watcher(
            asker.client, looks, prefix, lambda changes, prefix=prefix: told[prefix].extend(c.value for c in changes)
        )
        for prefix in told
    ]
    asker.until(lambda: all(watcher.confirmed for watcher in watchers))
    before, began = readings(etcd), boottime()
    asker.until(lambda: all(watcher.confirmed > began + 2 * LOOK_SECONDS for watcher in watchers))
    assert readings(etcd) - before <= (boottime() - began) / LOOK_SECONDS + 1
    assert isinstance(writer.ask(put_request(b"/two/a", b"new")), PutAnswer)
    asker.until(lambda: told[b"/two/"] == [b"new"])
    watchers.pop().close()
    asker.until(lambda: all(watcher.confirmed > began + 4 * LOOK_SECONDS for watcher in watchers))
    for watcher in watchers:
        watcher.close()
    assert told == {b"/one/": [], b"/two/": [b"new"], b"/three/": []}


def readings(etcd: Etcd) -> int:
    """How many readings all members were asked for so far."""
    count = 0.0
    for member in etcd.members:
        with urllib.request.urlopen(f"http://{member.host}:{member.port}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if re.match(r'grpc_server_started_total{grpc_method="(Range|Txn)"', line):
                    count += float(line.split()[-1])
    return int(count)
