"""What waits for a time: delayed publishes and delayed messages, over restarts, with clocks that jump."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call, Inspect
from shardmq.bus.messages.shard import (
    Ack,
    Confirmed,
    Counts,
    Delivered,
    DropQueue,
    Nack,
    Publish,
    Purge,
    Release,
)
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import ClockNote, SteadyClock
from shardmq.topology.entities import Queue
from tests.shards.clocked import LONG_MS, Clocked
from tests.shards.driver import Shard, consume, numbers, run_of

QUEUES = (
    Queue("/", "q", 1, 0),
    Queue("/", "volatile", 2, 0, durable=False),
    Queue("/", "small", 3, 0, arguments={"x-max-length": 3, "x-overflow": "reject-publish"}),
    Queue("/", "small and no exchange", 4, 0, arguments={"x-max-length": 3, "x-overflow": "reject-publish-dlx"}),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def delayed(queue: int, start: int, count: int, delay_ms: int, flags: int = 1) -> Publish:
    return Publish((queue,), run_of(start, count, flags), delay_ms=delay_ms)


def now_ms() -> float:
    return time.time() * 1000


def test_delayed_messages_come_when_they_are_due_in_the_order_of_their_times(shard: Shard) -> None:
    shard.ask(consume(1))
    sent = now_ms()
    shard.send(delayed(1, 0, 2, 600), delayed(1, 10, 1, 200), delayed(1, 20, 1, 400, flags=0), delayed(1, 30, 1, 0))
    assert shard.queue()["delayed"] == 4
    got = []
    for _ in range(4):
        got.append(shard.expect(Delivered))
        due = {30: 0, 10: 200, 20: 400, 0: 600}[numbers(got[-1:])[0]]
        assert due <= now_ms() - sent < due + 1000
        assert due == 0 or abs(got[-1].batch.timestamp_ms - sent - due) < 900
    assert numbers(got) == [30, 10, 20, 0, 1]
    assert not any(one.redelivered for one in got)
    assert shard.queue()["delayed"] == 0


def test_they_fire_soon_after_they_are_due(shard: Shard) -> None:
    shard.ask(consume(1, auto_ack=True))
    sent = now_ms()
    shard.send(*[delayed(1, number, 1, 300 + number) for number in range(500)])
    late: list[float] = []
    while len(late) < 500:
        for number in numbers([shard.expect(Delivered)]):
            late.append(now_ms() - sent - 300 - number)
    assert min(late) >= 0
    assert sorted(late)[250] < 500  # what a busy machine leaves of 100


def test_they_are_on_disk_when_they_are_confirmed_and_come_after_a_kill(shard: Shard) -> None:
    sent = now_ms()
    shard.send(delayed(1, 0, 3, 1500), delayed(1, 10, 1, 30_000), delayed(2, 5, 1, 1500))
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == 3)
    shard.restart()
    shard.assign(*QUEUES)
    table = shard.queue()
    assert table["delayed"] + table["ready"] == 4
    assert shard.queue(2)["delayed"] == 0
    shard.ask(consume(1))
    assert numbers(shard.delivered(3)) == [0, 1, 2]
    assert now_ms() - sent >= 1500
    assert shard.queue()["delayed"] == 1


def test_what_was_due_while_the_shard_was_down_comes_at_once_and_once(shard: Shard) -> None:
    shard.send(delayed(1, 0, 3, 300))
    shard.expect(Confirmed)
    shard.stop(9)
    time.sleep(0.4)  # the fact is about what passes while nobody is there
    for _ in range(2):
        shard.start()
        shard.redial()
        shard.until(lambda: shard.ask(Call(9, Counts(1))) == [3, 0])
        shard.stop(9)
    shard.start()
    shard.redial()


def test_purge_leaves_what_is_delayed_and_delete_takes_it(shard: Shard) -> None:
    shard.send(delayed(1, 0, 1, 300), *[delayed(1, number, 1, 30_000) for number in range(10, 2500)])
    shard.send(Publish((1,), run_of(5, 1)))
    assert shard.ask(Call(5, Purge(1))) == 1
    shard.until(lambda: shard.ask(Call(9, Counts(1))) == [1, 0])
    assert shard.ask(Call(7, Inspect()))["delayed"] == 2490
    shard.ask(Call(6, DropQueue(1)))
    assert shard.ask(Call(7, Inspect()))["delayed"] == 0
    shard.restart()
    shard.until(lambda: shard.ask(Call(8, Inspect()))["store"]["used_bytes"] < 200_000)


def test_parked_messages_return_to_their_place_when_they_are_due(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 4)), consume(1, prefetch=2))
    shard.delivered(2)
    sent = now_ms()
    shard.send(Nack(1, [(0, 1)], True, 400))
    assert numbers(shard.delivered(1)) == [2]
    table = shard.queue()
    assert (table["delayed"], table["ready"], table["unacked"], table["valid"]) == (1, 1, 2, 4)
    shard.send(Release(1))
    shard.until(lambda: shard.ask(Call(9, Counts(1)))[0] == 4)
    assert now_ms() - sent >= 400
    shard.send(consume(2))
    delivery_count = shard.delivered(4)
    assert numbers(delivery_count) == [0, 1, 2, 3]
    assert [one.redelivered for one in delivery_count for _ in range(one.batch.count)] == [True] * 3 + [False]


def test_parked_messages_stay_parked_over_a_kill(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 4)), consume(1))
    shard.delivered(4)
    shard.send(Nack(1, [(1, 3)], True, 3_000))
    assert shard.queue()["delayed"] == 2
    shard.restart()
    assert shard.ask(Call(8, Counts(1))) == [2, 0]
    assert shard.queue()["delayed"] == 2
    shard.until(lambda: shard.ask(Call(9, Counts(1))) == [4, 0])
    shard.send(consume(1))
    assert numbers(shard.delivered(4)) == [0, 1, 2, 3]
    shard.send(Ack(1, [(0, 4)]))
    assert shard.queue()["valid"] == 0
    shard.restart(signal.SIGTERM)
    assert shard.queue()["valid"] == 0


def test_the_timers_of_transient_messages_go_with_them(shard: Shard) -> None:
    shard.publish(Publish((1,), run_of(0, 3, 0)))
    shard.send(consume(1))
    shard.delivered(3)
    shard.send(Nack(1, [(0, 3)], True, 60_000))
    assert shard.queue()["delayed"] == 3
    for _ in range(2):
        shard.restart()
        assert shard.queue()["delayed"] == 0
    shard.publish(Publish((1,), run_of(0, 3)))
    shard.restart()
    assert shard.queue()["ready"] == 3


@pytest.mark.parametrize("further_ms", [None, LONG_MS])
def test_what_begins_to_wait_while_another_message_is_due_comes_in_its_time(
    tmp_path: Path, further_ms: int | None
) -> None:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    shard.take_in(run_of(0, 3))
    first, second, third = [got.first for got in [shard.get() for _ in range(3)] if got is not None]
    if further_ms is not None:
        shard.tell(Nack(9, [(third, third + 1)], True, further_ms))
    shard.tell(Nack(9, [(first, first + 1)], True, 1000))
    shard.let_pass(1000)  # what comes next finds the first one due in its very pass
    shard.tell(Nack(9, [(second, second + 1)], True, 1000))
    assert (shard.bodies(), shard.table()["delayed"]) == ([0], 1 if further_ms is None else 2)
    shard.put_forward(1500)
    assert shard.bodies() == [0, 1]
    shard.close()


@pytest.mark.parametrize("queue", [3, 4])
def test_a_full_queue_gets_what_is_due_when_it_has_room(shard: Shard, queue: int) -> None:
    shard.send(delayed(queue, 0, 5, 100))
    shard.until(lambda: shard.ask(Call(9, Counts(queue))) == [3, 0])
    assert shard.queue(queue)["delayed"] == 2
    shard.send(consume(1, queue=queue))
    assert numbers(shard.delivered(5)) == [0, 1, 2, 3, 4]


def test_what_is_due_waits_for_room_where_a_policy_has_taken_the_dead_letter_exchange_away(tmp_path: Path) -> None:
    shard = Clocked(tmp_path)
    burying = {"x-max-length": 1, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "dlx"}
    shard.assign(Queue("/", "q", 1, 0, policy=burying))
    shard.take_in(run_of(0, 1))
    shard.tell(delayed(1, 1, 1, 1000))
    shard.put_forward(1000)  # this one is a dead letter, which is on its way
    shard.tell(delayed(1, 2, 1, 1000))
    shard.assign(Queue("/", "q", 1, 0, policy={**burying, "x-dead-letter-exchange": None}))
    shard.put_forward(1000)
    assert (shard.bodies(), shard.table()["dying"], shard.table()["delayed"]) == ([0], 1, 1)
    assert shard.get(auto_ack=True) is not None
    shard.put_forward(1000)
    assert (shard.bodies(), shard.table()["delayed"]) == ([2], 0)
    shard.close()


@pytest.mark.parametrize("jump", [-86_400, 86_400])
def test_a_clock_that_jumps_fires_and_stalls_nothing(tmp_path: Path, jump: int) -> None:
    (tmp_path / "wall-seconds").write_text("0")
    shard = Shard(tmp_path)
    shard.assign(*QUEUES)
    sent = time.monotonic()
    shard.send(delayed(1, 0, 1, 1_500), delayed(1, 1, 1, 60_000))
    shard.expect(Confirmed)
    (tmp_path / "wall-seconds").write_text(str(jump))
    shard.restart()
    shard.until(lambda: shard.ask(Call(9, Counts(1)))[0] > 0)
    assert 1.5 <= time.monotonic() - sent < 8
    assert shard.queue()["delayed"] == 1
    shard.close()


def test_after_a_boot_the_clock_does_not_go_back() -> None:
    note = SteadyClock().note()
    ahead = ClockNote("another-boot", 5, note.steady_ms + 1_000_000)
    assert SteadyClock.resumed(ahead).now_ms() >= ahead.steady_ms
    behind = ClockNote("another-boot", 5, 1_000)
    assert SteadyClock.resumed(behind).now_ms() >= note.steady_ms
    same = ClockNote(note.boot, note.boottime_ms - 250, 1_000)
    assert 1_250 <= SteadyClock.resumed(same).now_ms() < 60_000


def test_timers_that_fell_due_together_fire_once_though_one_look_does_not_reach_them_all(shard: Shard) -> None:
    large = RecordBatch("ex", "key", 1, 5, 9, 100, 1, pack_many([bytes(5 << 20)]))  # more than one look takes
    shard.send(delayed(1, 0, 1, 700), Publish((1,), large, delay_ms=500))
    assert shard.queue()["delayed"] == 2
    shard.process.send_signal(signal.SIGSTOP)
    time.sleep(0.9)  # both fall due while the shard sleeps
    shard.process.send_signal(signal.SIGCONT)
    shard.until(lambda: shard.queue()["delayed"] <= 0)
    assert (shard.queue()["delayed"], shard.queue()["ready"]) == (0, 2)
