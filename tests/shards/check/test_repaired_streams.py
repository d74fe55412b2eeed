"""A stream that was repaired: whoever reads it gets everything but what was damaged, and what comes later."""

from collections.abc import Callable
from itertools import count as count_from
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.groups import GroupReading, InspectPartition, PartitionState
from shardmq.bus.messages.reads import Peek, Pull, Search
from shardmq.bus.messages.shard import Ack, Cancel, Consume, Delivered, DropQueue, Nack, Publish, Release
from shardmq.bus.messages.streams import Reading
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.search.filters import SearchFilters
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore, mend
from shardmq.shards.check.queues import Registry
from shardmq.shards.segments.index_entry import extent_of
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.schema import INDEX, PLACE, SHARED
from shardmq.shards.storage.store import Store
from shardmq.storage.repair.findings import Finding
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip, flip_body, rows
from tests.shards.driver import numbers

QUEUES = (Queue("/", "log", 1, 0, arguments={"x-queue-type": "stream"}), Queue("/", "q", 2, 0))
KNOWN = Registry({queue.id: queue for queue in QUEUES})
BATCHES = 40
"""More segments than are left unmerged."""

ALL = set(range(10 * BATCHES))
FIRST = Reading("first")
UNTAGGED = Reading("first", tags=["red"], has_untagged=True)

_consumers = count_from(1000)


def padded(start: int) -> RecordBatch:
    """Ten messages that are large enough to be shared by queues, and to be put together for several readers."""
    bodies = [b"%1000d" % number for number in range(start, start + 10)]
    return RecordBatch("ex", "key", 1, 5, 9, start, 10, pack_many(bodies))


def filled(folder: Path, at_once: int) -> Clocked:
    """A shard with a stream whose segments have so many batches each, which it shares with a queue."""
    shard = Clocked(folder)
    shard.assign(*QUEUES)
    for start in range(0, BATCHES, at_once):
        batches = [padded(10 * place) for place in range(start, start + at_once)]
        assert not shard.publish(*[Publish((1, 2), batch) for batch in batches])
    return shard


def repaired(shard: Clocked, damage: Callable[[Store], None]) -> list[Finding]:
    """Stop it, damage its store, repair that, and start it again; returns what was found."""
    folder = shard.folder / "store"
    shard.dialer.close()
    shard.loop.stop()
    shard.listener.close()
    shard.store.close()
    store = Store.open(folder)
    damage(store)
    store.close()
    found = findings(folder)
    mend(folder, [edit for each in found for edit in each.edits])
    assert findings(folder) == []
    shard.inbox.clear()
    shard.open()
    shard.assign(*QUEUES)
    return found


def findings(folder: Path) -> list[Finding]:
    store = ClosedStore(folder)
    try:
        return list(check_shard("shard-0", store, KNOWN))
    finally:
        store.close()


def lose_segments(*firsts: int) -> Callable[[Store], None]:
    return lambda store: [flip_body(store, 1, first) for first in firsts] and None


def lose_bodies(*places: int) -> Callable[[Store], None]:
    """The shared bodies at these places among all."""
    return lambda store: [flip(store, "shared", list(store.engine.keys(SHARED))[place]) for place in places] and None


def without(*batches: int) -> list[int]:
    """All numbers but those of these batches."""
    return sorted(ALL - {number for place in batches for number in range(10 * place, 10 * place + 10)})


def reading(consumer: int, begin: Reading | GroupReading, prefetch: int) -> Call[int | None]:
    reading, group = (begin, None) if isinstance(begin, Reading) else (None, begin)
    ask = Consume(consumer, 1, prefetch, False, DELIVERY_WINDOW_BYTES, reading=reading, group=group)
    return Call(100 + consumer, ask)


def read_by(shard: Clocked, count: int, *consumers: int) -> list[list[int]]:
    """What consumers get who acknowledge each delivery, until each has so many; offsets and bodies agree."""
    got: dict[int, list[int]] = {consumer: [] for consumer in consumers}
    while any(len(each) < count for each in got.values()):
        one = shard.expect(Delivered)
        end = one.first + one.batch.count
        assert numbers([one]) == list(range(one.first, end)), "offsets and bodies"
        got[one.consumer] += numbers([one])
        shard.send(Ack(one.consumer, [(one.first, end)]))
    return list(got.values())


def read_alike(shard: Clocked, count: int, *readings: tuple[Reading | GroupReading, int]) -> list[list[int]]:
    """What consumers who read at the same time get; they are ended then."""
    consumers = [next(_consumers) for _ in readings]
    for consumer, (begin, prefetch) in zip(consumers, readings, strict=True):
        shard.ask(reading(consumer, begin, prefetch))
    got = read_by(shard, count, *consumers)
    for consumer in consumers:
        shard.do(Cancel, consumer)
        shard.tell(Release(consumer))
    return got


def searched(shard: Clocked) -> list[int]:
    offsets: list[int] = []
    following: int | None = 0
    while following is not None:
        deliveries, _, following, _, _ = shard.do(Search, 1, following, 7, SearchFilters())
        for first, _, _, fields in deliveries:
            batch = RecordBatch(*fields)
            offsets += [int(each.body) for each in unpack(batch.records, batch.count)]
            assert offsets[-batch.count] == first
    return offsets


def peeked(shard: Clocked, count: int, page: int) -> list[int]:
    offsets: list[int] = []
    for place in range(0, count, page):
        offsets += [each for first, _, _, fields in shard.do(Peek, 1, place, page) for each in span(first, fields[6])]
    return offsets


def pulled(shard: Clocked, begin: int) -> list[int]:
    offsets: list[int] = []
    while True:
        deliveries, begin, _, end, _ = shard.do(Pull, 1, Reading("offset", begin), 7, 1 << 20)
        offsets += [each for first, _, _, fields in deliveries for each in span(first, fields[6])]
        if begin == end:
            return offsets


def span(first: int, count: int) -> range:
    return range(first, first + count)


def everybody_gets(shard: Clocked, left: list[int], name: str) -> None:
    """Every way of reading brings all that is left, once and in order, and what comes afterwards."""
    count = len(left)
    assert shard.table()["ready"] == count
    assert [number for number, _, _, _ in shard.read()] == left
    assert (searched(shard), peeked(shard, count, 7), pulled(shard, 0)) == (left, left, left)
    assert pulled(shard, 13) == [offset for offset in left if offset >= 13]
    for begin, prefetch in [(FIRST, 0), (FIRST, 3), (UNTAGGED, 4)]:
        assert read_alike(shard, count, (begin, prefetch)) == [left]
    assert read_alike(shard, count, (FIRST, 0), (FIRST, 7)) == [left, left]
    for is_shared in (True, False):
        assert read_alike(shard, count, (GroupReading(f"{name} {is_shared}", is_shared, 1, "m", FIRST), 3)) == [left]
    state = PartitionState(*shard.do(InspectPartition, 1))
    groups = {group[0]: (group[2], group[6]) for group in state.groups}
    assert groups[f"{name} True"] == groups[f"{name} False"] == (state.next, 0)


def is_merged(shard: Clocked) -> bool:
    return bool(shard.table()["segments"] < BATCHES // 2)


@pytest.mark.parametrize("lost", [(0,), (1,), (7, 8, 20), (0, 1, 3, 38, 39)])
def test_segments_that_were_lost_are_passed_over_also_when_the_others_are_merged(
    tmp_path: Path, lost: tuple[int, ...]
) -> None:
    shard = filled(tmp_path, at_once=1)
    found = repaired(shard, lose_segments(*[10 * place for place in lost]))
    assert [each.messages for each in found] == [10] * len(lost)
    everybody_gets(shard, without(*lost), "before")
    while not is_merged(shard):
        shard.turn()
    everybody_gets(shard, without(*lost), "merged")
    shard.restart()
    everybody_gets(shard, without(*lost), "again")
    shard.take_in(padded(10 * BATCHES))
    assert pulled(shard, 10 * BATCHES) == list(range(10 * BATCHES, 10 * BATCHES + 10))
    shard.close()


@pytest.mark.parametrize("lost", [(0,), (1,), (3, 4, 5, 38), (39,)])
def test_shared_bodies_that_were_lost_leave_the_others_of_their_segments(tmp_path: Path, lost: tuple[int, ...]) -> None:
    shard = filled(tmp_path, at_once=20)
    assert shard.table()["segments"] < BATCHES
    repaired(shard, lose_bodies(*lost))
    everybody_gets(shard, without(*lost), "before")
    assert shard.bodies(queue=2) == without(*lost)
    shard.restart()
    everybody_gets(shard, without(*lost), "again")
    shard.close()


@pytest.mark.parametrize("damage", [lose_segments(380, 390), lose_segments(*range(0, 400, 10)), lose_bodies(38, 39)])
def test_the_offsets_of_the_newest_messages_are_not_given_again(
    tmp_path: Path, damage: Callable[[Store], None]
) -> None:
    shard = filled(tmp_path, at_once=1)
    group = GroupReading("g", False, 1, "m", FIRST)
    assert read_alike(shard, 10 * BATCHES, (group, 0)) == [sorted(ALL)]
    repaired(shard, damage)
    repaired(shard, lambda _: None)
    shard.ask(reading(5, group, 0))
    shard.take_in(padded(10 * BATCHES))
    assert read_by(shard, 10, 5) == [list(range(10 * BATCHES, 10 * BATCHES + 10))], "the group has read all before"
    shard.restart()
    everybody_gets(shard, [*pulled(shard, 0)[:-10], *range(10 * BATCHES, 10 * BATCHES + 10)], "more")
    assert shard.do(DropQueue, 1)
    shard.tell()
    assert not rows(shard.store, "marks", 1)
    shard.close()


def test_what_a_group_had_returned_with_a_delay_comes_but_for_what_was_lost(tmp_path: Path) -> None:
    shard = filled(tmp_path, at_once=1)
    group = GroupReading("g", True, 1, "m", FIRST)
    shard.ask(reading(5, group, 30))
    got = 0
    while got < 30:
        got += shard.expect(Delivered).batch.count
    shard.tell(Nack(5, [(5, 25)], True, 1000), Ack(5, [(0, 5), (25, 30)]))
    repaired(shard, lose_segments(10))
    shard.put_forward(1000)
    shard.ask(reading(6, group, 10))
    left = [*range(5, 10), *range(20, 25), *range(30, 10 * BATCHES)]
    assert sorted(read_by(shard, len(left), 6)[0]) == left
    shard.close()


def test_a_declaration_that_only_the_coordinator_knows_makes_a_streams_entries(tmp_path: Path) -> None:
    shard = filled(tmp_path, at_once=1)

    def damage(store: Store) -> None:
        flip(store, "queues", (1).to_bytes(8, "big"))
        flip(store, "index", PLACE.pack(1, 10 * (BATCHES - 1)))

    found = repaired(shard, damage)
    assert [(each.database, each.messages) for each in found] == [("queues", 0), ("index", 0)]
    assert pulled(shard, 0) == sorted(ALL)
    shard.close()


def test_an_entry_without_times_as_earlier_repairs_left_it_is_found_and_made_anew(tmp_path: Path) -> None:
    shard = filled(tmp_path, at_once=1)

    def damage(store: Store) -> None:
        (entry,) = [each for each in store.load().segments if (each.queue, each.first) == (1, 10)]
        plain = Segment(1, 10, durable=True, born=0.0)
        plain.end, plain.count, plain.bytes, plain.shared = entry.end, entry.count, entry.bytes, entry.shared
        key = PLACE.pack(1, 10)
        store.engine.apply([(INDEX, key, extent_of(plain))])

    (found,) = repaired(shard, damage)
    assert found.what == "what is noted of the messages is of a queue, not a stream"
    everybody_gets(shard, sorted(ALL), "g")
    shard.close()
