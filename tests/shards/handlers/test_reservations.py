"""Messages held under a name: held for nobody else, acknowledged or put back, whatever happens in between."""

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.bus.messages.reads import EndReservation, Peek, Reserve, Slices
from shardmq.bus.messages.shard import (
    Counts,
    Delivered,
    DropQueue,
    Nack,
    Publish,
    Purge,
)
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.clocked import LONG_MS, Clocked
from tests.shards.driver import Shard, consume, run_of

PLAIN = Queue("/", "q", 1, 0)
QUEUES = (
    PLAIN,
    Queue("/", "urgent", 2, 0, arguments={"x-max-priority": 5}),
    Queue("/", "counted", 3, 0, arguments={"x-delivery-limit": 1, "x-dead-letter-exchange": "dlx"}),
    Queue("/", "narrow", 4, 0, arguments={"x-max-length": 3}),
    Queue("/", "full", 5, 0, arguments={"x-max-length-bytes": 3, "x-overflow": "reject-publish"}),
    Queue("/", "hasty", 6, 0, arguments={"x-message-ttl": 60_000}),
    Queue("/", "volatile", 7, 0, durable=False),
    Queue("/", "brief", 8, 0, arguments={"x-expires": 60_000}),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def of_priority(priority: int, start: int, count: int) -> RecordBatch:
    batch = run_of(start, count)
    batch.priority = priority
    return batch


@pytest.mark.parametrize("queue", [1, 3, 7])
def test_what_is_reserved_is_neither_delivered_nor_counted_nor_purged(shard: Clocked, queue: int) -> None:
    shard.take_in(run_of(0, 10), queue=queue)
    assert shard.reserve("night", 6, queue=queue) == (6, False)
    assert shard.do(Counts, queue) == [4, 0]
    table = shard.table(queue)
    assert (table["reserved"], table["ready"], table["valid"], table["total"], table["unacked"]) == (6, 4, 10, 10, 0)
    assert shard.bodies(queue=queue) == [6, 7, 8, 9]
    assert [delivery[0] for delivery in shard.do(Peek, queue, 0, 10)] == [6]
    got = shard.get(queue=queue)
    assert got is not None
    assert (got.first, got.ready) == (6, 3)
    assert shard.do(Purge, queue) == 3
    assert shard.bodies("night", queue) == [0, 1, 2, 3, 4, 5]
    assert shard.do(Slices, queue, 2, "night") == [[0, 3, 3], [3, 6, 3]]
    assert shard.acknowledge("night", queue=queue) == 6
    assert (shard.table(queue)["reserved"], shard.table(queue)["valid"], shard.table(queue)["acked"]) == (0, 1, 6)


def test_a_name_keeps_what_it_has_until_it_is_ended(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5))
    assert shard.reserve("night") == (5, False)
    shard.take_in(run_of(5, 5))
    assert shard.reserve("night") == (5, False)
    assert shard.reserve("other", 2) == (2, False)
    assert shard.bodies("night") == [0, 1, 2, 3, 4]
    assert shard.bodies("other") == [5, 6]
    assert shard.bodies() == [7, 8, 9]


def test_of_an_empty_queue_nothing_is_reserved_and_acknowledging_that_ends_it(shard: Clocked) -> None:
    assert shard.reserve("night") == (0, False)
    shard.take_in(run_of(0, 5))
    assert shard.reserve("night") == (0, False)
    assert shard.do(Slices, 1, 4, "night") == []
    assert shard.acknowledge("night") == 0
    assert shard.reserve("night") == (0, True)
    assert shard.bodies() == [0, 1, 2, 3, 4]


def test_the_first_of_all_priorities_are_reserved(shard: Clocked) -> None:
    shard.take_in(of_priority(0, 0, 4), of_priority(5, 10, 2), of_priority(3, 20, 3), queue=2)
    assert shard.reserve("night", 4, queue=2) == (4, False)
    assert shard.bodies("night", 2) == [10, 11, 20, 21]
    assert shard.bodies(queue=2) == [22, 0, 1, 2, 3]
    assert shard.release("night", 2) == 4
    assert shard.bodies(queue=2) == [10, 11, 20, 21, 22, 0, 1, 2, 3]


def test_reading_says_what_had_been_delivered_before_it_was_reserved_also_after_a_restart(shard: Clocked) -> None:
    shard.take_in(of_priority(5, 0, 4), of_priority(0, 10, 2), queue=2)
    for _ in range(2):
        shard.get(queue=2)
    shard.tell(Nack(9, [(0, 2)], True))
    shard.reserve("night", queue=2)
    marks = [False] * 6
    marks[:2] = [True, True]
    assert [redelivered for _, _, redelivered, _ in shard.read("night", 2)] == marks
    shard.restart()
    assert [redelivered for _, _, redelivered, _ in shard.read("night", 2)] == marks
    assert shard.release("night", 2) == 6
    assert all(redelivered for _, _, redelivered, _ in shard.read(queue=2))


def test_parked_and_dying_messages_are_apart_from_reserved_ones(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10), queue=3)
    for _ in range(4):
        shard.get(queue=3)
    shard.tell(Nack(9, [(0, 2)], True, 5000), Nack(9, [(2, 4)], False))
    shard.reserve("night", 3, queue=3)
    table = shard.table(3)
    assert (table["delayed"], table["dying"], table["reserved"], table["ready"]) == (2, 2, 3, 3)
    assert shard.bodies("night", 3) == [4, 5, 6]
    assert shard.expect(DeadLetter).first == 2
    shard.restart()
    assert shard.bodies("night", 3) == [4, 5, 6]
    assert shard.table(3)["delayed"] == 2
    shard.put_forward(6000)
    assert shard.table(3)["delayed"] == 0
    assert shard.release("night", 3) == 3
    assert shard.bodies(queue=3) == list(range(10))


def test_parts_are_acknowledged_once(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    shard.reserve("night", 8)
    assert shard.acknowledge("night", [(0, 3), (5, 6)]) == 4
    assert shard.acknowledge("night", [(2, 5)]) == 2
    assert shard.bodies("night") == [6, 7]
    assert shard.reserve("night") == (2, False)
    assert shard.table()["valid"] == 4
    for ranges in ([(7, 9)], [(6, 7), (6, 8)], [(7, 7)]):
        refusal = shard.refused(EndReservation, 1, "night", True, ranges)
        assert refusal.code == 406
        assert f"range [{ranges[-1][0]}, {ranges[-1][1]}) is not within reservation 'night'" in refusal.text
        assert "which has [0, 8)" in refusal.text
    shard.restart()
    assert shard.bodies("night") == [6, 7]
    assert shard.acknowledge("night", [(0, 1)]) == 0
    assert shard.acknowledge("night", [(6, 8)]) == 2
    assert shard.reserve("night") == (0, True)


def test_acknowledged_messages_are_no_dead_letters(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5), queue=3)
    shard.reserve("night", queue=3)
    assert shard.acknowledge("night", queue=3) == 5
    table = shard.table(3)
    assert (table["dying"], table["dead_lettered"], table["dropped"], table["valid"]) == (0, 0, 0, 0)


def test_every_second_of_two_hundred_thousand_is_acknowledged_and_the_others_come_back(shard: Clocked) -> None:
    count = 200_000
    shard.take_in(*[run_of(start, 20_000) for start in range(0, count, 20_000)])
    assert shard.reserve("night") == (count, False)
    assert shard.acknowledge("night", [(number, number + 1) for number in range(0, count, 2)]) == count // 2
    shard.restart()
    assert shard.reserve("night") == (count // 2, False)
    assert shard.do(Slices, 1, 2, "night") == [[1, 100_000, 50_000], [100_001, 200_000, 50_000]]
    assert shard.release("night") == count // 2
    assert shard.reserve("again", 60_000) == (60_000, False)
    assert shard.acknowledge("again") == 60_000
    assert [int(body) for _, body, _, _ in shard.read(count=65_536, end=130_001)] == list(range(120_001, 130_001, 2))
    assert shard.do(Purge, 1) == 40_000


def test_what_is_released_is_at_its_place_and_marked(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    shard.reserve("night", 4)
    shard.acknowledge("night", [(1, 2)])
    assert shard.release("night") == 3
    assert [(int(body), redelivered) for _, body, redelivered, _ in shard.read()] == [
        (number, number < 4) for number in (0, 2, 3, 4, 5, 6, 7, 8, 9)
    ]
    assert shard.release("night") == 0
    assert shard.release("nobody's") == 0
    refusal = shard.refused(EndReservation, 1, "night", True, [])
    assert refusal.code == 404
    assert "was released" in refusal.text
    assert "read again" in refusal.text


def test_a_lease_that_is_over_puts_messages_back(shard: Clocked) -> None:
    shard.take_in(run_of(0, 10))
    shard.reserve("night", 4, lease_ms=60_000)
    shard.reserve("day", 4, lease_ms=120_000)
    shard.put_forward(50_000)
    shard.reserve("night", lease_ms=100_000)
    shard.put_forward(50_000)
    assert shard.bodies() == [8, 9]
    shard.put_forward(21_000)
    assert shard.bodies() == [4, 5, 6, 7, 8, 9]
    refusal = shard.refused(EndReservation, 1, "day", True, [])
    assert refusal.code == 404
    assert "its lease was over" in refusal.text
    shard.reserve("night", lease_ms=1)
    shard.put_forward(2)
    assert shard.bodies() == list(range(10))
    assert shard.reserve("day") == (10, False)


@pytest.mark.parametrize("end", ["restart", "stop"])
def test_the_lease_of_a_reservation_found_at_start_goes_on(shard: Clocked, end: str) -> None:
    shard.take_in(run_of(0, 10))
    shard.reserve("night", 4, lease_ms=60_000)
    shard.put_forward(40_000)
    getattr(shard, end)()
    assert shard.bodies() == [4, 5, 6, 7, 8, 9]
    assert shard.table()["reserved"] == 4
    shard.put_forward(21_000)
    assert shard.bodies() == list(range(10))
    getattr(shard, end)()
    assert shard.table()["reserved"] == 0
    assert "never made, or it ended before" in shard.refused(EndReservation, 1, "night", True, []).text


def test_consumers_get_what_comes_back(shard: Clocked) -> None:
    shard.take_in(run_of(0, 3))
    shard.reserve("night")
    shard.ask(consume(1, auto_ack=True))
    assert shard.release("night") == 3
    delivered = shard.expect(Delivered)
    assert (delivered.first, delivered.batch.count, delivered.redelivered) == (0, 3, True)


@pytest.mark.parametrize("queue", [1, 7])
def test_ranges_are_reserved_and_all_others_stay(shard: Clocked, queue: int) -> None:
    shard.take_in(run_of(0, 10), queue=queue)
    assert shard.do(Reserve, queue, "some", 0, LONG_MS, [(2, 4), (8, 20)]) == [4, False]
    assert [int(body) for _, body, _, _ in shard.read(queue=queue)] == [0, 1, 4, 5, 6, 7]
    assert [int(body) for _, body, _, _ in shard.read("some", queue)] == [2, 3, 8, 9]
    assert shard.do(Reserve, queue, "none", 0, LONG_MS, []) == [0, False]
    assert shard.do(Reserve, queue, "some", 0, LONG_MS, [(0, 1)]) == [4, False], "it keeps what it has"
    assert shard.do(Counts, queue) == [6, 0]


@pytest.mark.parametrize("queue", [1, 2, 3])
def test_a_reservation_of_no_messages_leaves_those_that_are_ready_as_they_are(shard: Clocked, queue: int) -> None:
    shard.take_in(run_of(0, 10), queue=queue)
    assert shard.do(Reserve, queue, "mark", 0, LONG_MS, []) == [0, False]
    assert shard.do(Slices, queue, 1, "mark") == []
    assert [(int(body), redelivered) for _, body, redelivered, _ in shard.read(queue=queue)] == [
        (number, False) for number in range(10)
    ]
    assert shard.release("mark", queue) == 0
    assert shard.refused(Slices, queue, 1, "mark").code == 404


def test_a_deleted_queue_takes_its_reservations_with_it(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5))
    shard.reserve("night", 3)
    shard.reserve("gone")
    shard.acknowledge("gone")
    assert shard.do(DropQueue, 1) == 0, "what is reserved is held, and not counted"
    shard.restart()
    assert shard.loop._reservations._names == {}
    shard.assign(PLAIN)
    assert shard.refused(Slices, 1, 3, "night").code == 404
    shard.put_forward(2 * LONG_MS)


def test_of_transient_messages_what_is_there_stays_reserved_and_others_get_the_numbers(shard: Clocked) -> None:
    shard.take_in(run_of(0, 2), run_of(2, 3, flags=0), run_of(5, 1), run_of(6, 3, flags=0))
    shard.reserve("night")
    shard.take_in(run_of(20, 2))
    shard.stop()
    assert shard.bodies("night") == [0, 1, 5]
    shard.restart()
    shard.take_in(run_of(30, 9))
    shard.restart()
    assert shard.bodies("night") == [0, 1, 5]
    assert shard.bodies() == [20, 21, *range(30, 39)]
    assert shard.acknowledge("night") == 3
    shard.restart()
    assert shard.bodies() == [20, 21, *range(30, 39)]


def test_numbers_of_reserved_messages_that_are_gone_are_reserved_no_more(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5, flags=0))
    assert shard.reserve("night") == (5, False)
    shard.restart()
    assert shard.bodies("night") == []
    shard.take_in(run_of(10, 3))
    assert shard.read()[0][0] < 5
    shard.restart()
    assert shard.bodies() == [10, 11, 12]
    assert shard.bodies("night") == []


def test_what_is_answered_survives_a_kill_at_once(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shard.assign(PLAIN)
    shard.publish(Publish((1,), run_of(0, 1000)))
    chosen = random.Random(1)
    left = set(range(600))
    assert shard.ask(Call(5, Reserve(1, "night", 600, LONG_MS))) == [600, False]
    for request in range(6, 12):
        shard.restart(signal.SIGKILL)
        parts = sorted(chosen.sample(sorted(left), 80))
        ranges = [(number, number + 1) for number in parts]
        assert shard.ask(Call(request, EndReservation(1, "night", True, ranges))) == 80
        left.difference_update(parts)
        shard.restart(signal.SIGKILL)
        assert shard.ask(Call(5, Reserve(1, "night", 0, LONG_MS))) == [len(left), False]
        slices = shard.ask(Call(request, Slices(1, 600, "night")))
        assert slices == [[number, number + 1, 1] for number in sorted(left)]
        assert shard.ask(Call(7, Counts(1))) == [400, 0]
    assert shard.ask(Call(12, EndReservation(1, "night", False, []))) == len(left)
    shard.restart(signal.SIGKILL)
    assert shard.ask(Call(7, Counts(1))) == [400 + len(left), 0]
    assert shard.queue()["reserved"] == 0
    shard.close()
