"""Messages that several queues of a shard get: stored once, for as long as one of the queues has them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Ack, AtomicCommit, Delivered, Get, Publish, Purge
from shardmq.message.batch_parts import CommonBatch
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.check.check import check_shard
from shardmq.shards.check.closed_store import ClosedStore
from shardmq.shards.segments.shared_batch import SHARED_BYTES_MIN
from shardmq.shards.storage.schema import NUMBER, SHARED, SPILLED_SHARED
from shardmq.topology.entities import Queue
from tests.shards.clocked import Clocked
from tests.shards.damaging import flip
from tests.shards.driver import Shard as Process
from tests.shards.driver import consume

LARGE = 10_000
QUEUES = (*(Queue("/", f"queue {number}", number, 0) for number in range(1, 21)), Queue("/", "brief", 21, 0, False))
ALL = tuple(range(1, 21))


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path, memory_bytes=1 << 20)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def large(start: int, count: int, flags: int = 1) -> RecordBatch:
    bodies = [b"%05d" % number * (LARGE // 5) for number in range(start, start + count)]
    return RecordBatch("ex", "key", flags, 5, 9, start, count, pack_many(bodies))


def stored(shard: Clocked, database: int = SHARED) -> list[int]:
    """Numbers of the bodies in the store."""
    return [int.from_bytes(key, "big") for key in shard.store.engine.keys(database)]


def stored_bytes(shard: Clocked) -> int:
    return sum(len(value) for number in range(17) for _, value in shard.store.engine.scan(number))


def seen(shard: Clocked, queue: int) -> list[int]:
    """The numbers of the messages that a queue has, each of which is whole."""
    bodies = [body for _, body, _, _ in shard.read(queue=queue)]
    assert all(body == body[:5] * (LARGE // 5) for body in bodies)
    return [int(body[:5]) for body in bodies]


def test_a_body_is_stored_once_however_many_queues_have_it(shard: Clocked) -> None:
    before = stored_bytes(shard)
    assert not shard.publish(*[Publish(ALL, large(number, 1)) for number in range(10)])
    assert len(stored(shard)) == 10
    assert stored_bytes(shard) - before < 10 * LARGE * 1.5
    for queue in ALL:
        assert seen(shard, queue) == [*range(10)]
    shard.restart()
    for queue in ALL:
        assert seen(shard, queue) == [*range(10)]


def test_it_is_deleted_with_the_last_queue_s_message_and_no_earlier(shard: Clocked) -> None:
    assert not shard.publish(Publish(ALL, large(0, 3)))
    for queue in ALL:
        assert len(stored(shard)) == 1
        if queue == 7:
            shard.restart()
        assert len([shard.get(90 + queue, queue, auto_ack=True) for _ in range(3)]) == 3
        shard.tell()
    assert stored(shard) == []
    assert not shard.publish(Publish(ALL, large(0, 3)))
    assert stored(shard) != [0], "a number was given twice"


def test_small_messages_and_those_of_one_queue_are_stored_in_their_queue(shard: Clocked) -> None:
    small = RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([bytes(SHARED_BYTES_MIN - 10)]))
    assert not shard.publish(Publish(ALL, small), Publish((3,), large(0, 2)))
    assert stored(shard) == []


def test_a_purge_and_the_deletion_of_queues_delete_what_nobody_else_has(shard: Clocked) -> None:
    assert not shard.publish(Publish((1, 2), large(0, 1)), Publish((2, 3), large(1, 1)))
    assert shard.do(Purge, 2) == 2
    shard.tell()
    assert len(stored(shard)) == 2
    assert shard.do(Purge, 1) == 1
    shard.tell()
    assert len(stored(shard)) == 1
    assert seen(shard, 3) == [1]


def test_transient_messages_past_the_memory_are_spilled_once_and_forgotten_at_a_restart(tmp_path: Path) -> None:
    shard = Clocked(tmp_path, memory_bytes=10 * LARGE)
    shard.assign(*QUEUES)
    assert not shard.publish(*[Publish(ALL, large(number, 1, flags=0)) for number in range(4)])
    assert stored(shard, SPILLED_SHARED) == []  # together they count as four bodies
    for number in range(4, 40):
        assert not shard.publish(Publish((*ALL, 21), large(number, 1, flags=number % 2)))
    assert 0 < len(stored(shard, SPILLED_SHARED)) <= 40
    for queue in ALL:
        assert seen(shard, queue) == [*range(40)]
    assert seen(shard, 21) == [*range(4, 40)]
    shard.restart()
    assert stored(shard, SPILLED_SHARED) == []
    for queue in ALL:
        assert seen(shard, queue) == [*range(5, 40, 2)]
    shard.close()


def test_a_body_in_memory_counts_once(shard: Clocked) -> None:
    assert not shard.publish(Publish(ALL, large(0, 20)))
    cache = shard.loop._buffer.cache
    assert 20 * LARGE <= cache.bytes < 21 * LARGE
    cache.bytes_max = 0
    shard.tell()
    assert cache.bytes == 0
    cache.bytes_max = 1 << 20
    for queue in ALL:
        shard.requests += 1
        assert shard.get(90 + queue, queue) is not None
    assert 20 * LARGE <= cache.bytes < 21 * LARGE
    for queue in ALL:
        shard.tell(Ack(90 + queue, [(0, 1)]))
        assert shard.do(Purge, queue) == 19
    shard.tell()
    assert cache.bytes == 0
    assert cache.shared(0) is None


def test_a_damaged_body_takes_the_queues_out_of_service_that_have_it_and_no_others(shard: Clocked) -> None:
    assert not shard.publish(Publish((1, 2, 3), large(0, 1)), Publish((3, 4), large(1, 1)))
    shard.restart()
    (first, _) = stored(shard)
    flip(shard.store, "shared", NUMBER.pack(first))
    for queue in (1, 2, 3):
        refusal = shard.refused(Get, 90 + queue, queue, False)
        assert "out of service: row " + NUMBER.pack(first).hex() + " of database shared" in refusal.text
    assert shard.get(94, 4) is not None
    shard.restart()
    assert sorted(alarm["queue"] for alarm in shard.loop.table()["damaged"]) == [1, 2, 3]
    assert seen(shard, 4) == [1]


def test_a_body_that_is_missing_is_found_at_the_start(shard: Clocked) -> None:
    assert not shard.publish(Publish((1, 2, 3), large(0, 1)), Publish((3, 4), large(1, 1)))
    store = shard.store
    (first, _) = stored(shard)
    store.engine.apply([(SHARED, NUMBER.pack(first), None)])
    shard.restart()
    assert sorted(alarm["queue"] for alarm in shard.loop.table()["damaged"]) == [1, 2, 3]
    assert seen(shard, 4) == [1]


def test_where_an_entry_is_damaged_no_body_is_deleted(shard: Clocked) -> None:
    assert not shard.publish(Publish((1, 2), large(0, 1)))
    flip(shard.store, "index", NUMBER.pack(1) + NUMBER.pack(0))
    shard.restart()
    assert [alarm["queue"] for alarm in shard.loop.table()["damaged"]] == [1]
    assert shard.do(Purge, 2) == 1
    shard.tell()
    assert len(stored(shard)) == 1


def test_an_atomic_commit_to_several_queues_stores_its_bodies_once(shard: Clocked) -> None:
    shard.do(AtomicCommit, [Publish(ALL, large(0, 2))], [], [])
    assert len(stored(shard)) == 1
    assert all(seen(shard, queue) == [0, 1] for queue in ALL)


def test_messages_are_delivered_as_any_others(shard: Clocked) -> None:
    shard.ask(consume(5, 2))
    assert not shard.publish(Publish((1, 2), large(0, 3)))
    batch = shard.expect(Delivered).batch
    assert type(batch) is CommonBatch
    assert (batch.flags, [int(record.body[:5]) for record in unpack(batch.records, batch.count)]) == (1, [0, 1, 2])


def test_nothing_is_lost_or_left_behind_where_the_process_is_killed(tmp_path: Path) -> None:
    """A real process, killed again and again; its store is looked through at the end."""
    process = Process(tmp_path, memory_bytes=200_000)
    try:
        process.assign(*QUEUES[:20])
        expected: dict[int, list[int]] = {queue: [] for queue in ALL}
        for life in range(6):
            for number in range(life * 10, life * 10 + 10):
                targets = ALL if number % 3 else ALL[::4]
                process.publish(Publish(targets, large(number, 1)))
                for queue in targets:
                    expected[queue].append(number)
            for queue in ALL[life::6]:
                process.send(consume(5 + queue, queue))
                wanted = len(expected[queue])
                got = [one for one in process.delivered(wanted) if one.consumer == 5 + queue]
                assert [number for one in got for number in _numbers(one.batch)] == expected[queue]
                process.send(Ack(5 + queue, [(one.first, one.first + one.batch.count) for one in got]))
                expected[queue].clear()
            process.until(lambda: all(process.queue(queue)["valid"] == len(expected[queue]) for queue in ALL))
            process.ask(Call(3, AtomicCommit([], [], [])))  # has acknowledgements written that may wait a little
            process.restart()
        assert {queue: process.queue(queue)["ready"] for queue in ALL} == {q: len(n) for q, n in expected.items()}
        process.restart()
    finally:
        process.close()
    closed = ClosedStore(tmp_path / "shard-0")
    assert list(check_shard("shard-0", closed, None)) == []
    assert len(list(closed.rows(SHARED))) == len({number for numbers in expected.values() for number in numbers})
    closed.close()


def _numbers(batch: RecordBatch) -> list[int]:
    return [int(record.body[:5]) for record in unpack(batch.records, batch.count)]


def test_compaction_moves_references_and_copies_what_is_little(shard: Clocked) -> None:
    """Of every tenth body queue 1 keeps nine messages of ten, of all others one."""
    for start in range(0, 3000, 100):
        assert not shard.publish(*[Publish((1, 2), large(start + place, 10)) for place in range(0, 100, 10)])
    before = stored(shard)
    assert len(before) == 300
    left = [number for number in range(3000) if (number % 10 > 0) == (number % 100 < 10)]
    shard.reserve("all")
    shard.acknowledge("all", RangeSet([(n, n + 1) for n in left]).gaps(0, 3000))
    shard.release("all")
    deadline = time.monotonic() + 60
    while shard.table(1)["total"] > 2000:  # what is younger than a second is left alone
        assert time.monotonic() < deadline
        shard.turn()
    assert stored(shard) == before
    assert seen(shard, 1) == left
    shard.restart()
    assert seen(shard, 1) == left
    assert shard.do(Purge, 2) == 3000
    shard.tell()
    assert set(before[::10]) < set(stored(shard))
    assert len(stored(shard)) < 200, "a message keeps a body of ten"
    assert seen(shard, 1) == left
    assert shard.do(Purge, 1) == len(left)
    shard.tell()
    assert stored(shard) == []
