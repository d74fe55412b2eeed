"""Names of reservations, which outlive what they held: how long, and how many."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Call
from shardmq.bus.messages.reads import EndReservation, Read, Reserve, Slices
from shardmq.bus.messages.shard import DropQueue
from shardmq.limits import COMMITTED_KEPT_MS
from shardmq.shards.handlers import reservations
from shardmq.shards.handlers.reservations import ACKNOWLEDGED_MS, RESERVATIONS_MAX
from tests.shards.clocked import EVERYTHING, LONG_MS, Clocked
from tests.shards.driver import run_of
from tests.shards.handlers.test_reservations import QUEUES


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Clocked]:
    shard = Clocked(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def test_what_was_acknowledged_is_remembered_by_its_name(shard: Clocked) -> None:
    shard.take_in(run_of(0, 5))
    shard.reserve("night")
    assert shard.acknowledge("night") == 5
    shard.take_in(run_of(5, 2))
    for life in range(2):
        assert shard.acknowledge("night") == 0
        assert shard.acknowledge("night", [(0, 5)]) == 0
        assert shard.release("night") == 0
        assert shard.reserve("night") == (0, True)
        assert shard.do(Slices, 1, 3, "night") == []
        refusal = shard.refused(Read, 1, 0, EVERYTHING, 10, "night")
        assert refusal.code == 406
        assert "was acknowledged" in refusal.text
        assert shard.bodies() == [5, 6]
        if not life:
            shard.restart()
    shard.put_forward(max(ACKNOWLEDGED_MS, LONG_MS) + 1)
    refusal = shard.refused(EndReservation, 1, "night", True, [])
    assert refusal.code == 404
    assert "was acknowledged" in refusal.text
    assert shard.reserve("night") == (2, False)


@pytest.mark.parametrize("end", ["", "restart", "stop"])
def test_a_name_that_was_acknowledged_takes_nothing_new_for_as_long_as_one_of_a_transaction(
    shard: Clocked, end: str
) -> None:
    shard.take_in(run_of(0, 5))
    shard.reserve("night")
    shard.acknowledge("night")
    shard.take_in(run_of(5, 2))
    if end:
        getattr(shard, end)()
    shard.put_forward(COMMITTED_KEPT_MS - 60_000)
    assert shard.reserve("night") == (0, True)
    assert shard.bodies() == [5, 6]
    shard.put_forward(61_000)
    assert shard.reserve("night") == (2, False)


def test_a_shard_keeps_the_names_that_were_acknowledged_last(shard: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reservations, "ACKNOWLEDGED_MAX", 3)
    for number, queue in enumerate((1, 2, 1)):
        shard.reserve(f"r{number}", queue=queue)
        shard.acknowledge(f"r{number}", queue=queue)
        shard.let_pass(10)
    for _ in range(2):
        assert [shard.reserve(f"r{number}", queue=queue) for number, queue in enumerate((1, 2, 1))] == [(0, True)] * 3
        shard.restart()
    shard.reserve("r3", queue=3)
    shard.acknowledge("r3", queue=3)
    assert "was acknowledged" in shard.refused(EndReservation, 1, "r0", True, []).text
    assert shard.reserve("r1", queue=2) == (0, True)
    assert shard.do(Reserve, 1, "r2", 0, LONG_MS, None, True) == [0, False]  # kept; it may be used anew
    shard.take_in(run_of(0, 1))
    assert shard.do(Reserve, 1, "r2", 0, LONG_MS, None, True) == [1, False]
    shard.reserve("r4", queue=4)
    shard.acknowledge("r4", queue=4)
    assert shard.reserve("r1", queue=2) == (0, True), "r2 made room"
    shard.do(DropQueue, 3)
    shard.restart()
    assert shard.acknowledge("r2") == 1
    assert shard.reserve("r1", queue=2) == (0, True), "r3 went with its queue"


def test_a_queue_has_so_many_reservations_and_acknowledged_ones_do_not_count(shard: Clocked) -> None:
    for number in range(RESERVATIONS_MAX):
        shard.send(Call(10_000 + number, Reserve(1, f"r{number}", 1, LONG_MS + number)))
    refusal = shard.refused(Reserve, 1, "one more", 1, LONG_MS)
    assert refusal.code == 506
    assert "queue 'q' in vhost '/' has 1000 reservations" in refusal.text
    assert shard.reserve("r7") == (0, False)
    shard.acknowledge("r7")
    assert shard.reserve("one more") == (0, False)
    for number in range(RESERVATIONS_MAX):
        if number != 7:
            shard.send(Call(20_000 + number, EndReservation(1, f"r{number}", True, [])))
    shard.acknowledge("one more")
    assert shard.reserve("one more") == (0, True)
    assert len(shard.loop._reservations._names[1].there) == RESERVATIONS_MAX
    assert "was acknowledged" in shard.refused(EndReservation, 1, "r7", True, []).text
