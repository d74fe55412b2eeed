"""Transactions whose time is over, and names that are forgotten, by a clock in the test's hands."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.coordinator.state import transactions
from shardmq.coordinator.storage.store import Store
from shardmq.limits import COMMITTED_KEPT_MS, TRANSACTION_TIMEOUT_MS
from shardmq.topology.commands import BeginTransaction, CommitTransaction

if TYPE_CHECKING:
    from tests.coordinator.conftest import Clock, GatewayEnd, Room, ShardEnd


@pytest.fixture
def ends(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def begun(room: "Room", gateway: "GatewayEnd", name: str = "t", timeout_ms: int = 0) -> tuple[int, bool]:
    answer = room.perform(gateway, BeginTransaction("/", name, "anna", timeout_ms))
    assert isinstance(answer, Answer)
    number, is_committed = answer.result
    return number, is_committed


def test_what_nobody_begins_again_in_time_is_aborted(room: "Room", clock: "Clock", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    short, _ = begun(room, gateway, "short", 3_600_000)
    long, _ = begun(room, gateway, "long")
    clock.ahead_ms += 3_600_000
    room.until(lambda: list(gateway.topology.transactions) == [long])
    room.until(lambda: all(shard.decisions == [(short, [])] for shard in ends))
    clock.ahead_ms += TRANSACTION_TIMEOUT_MS
    room.until(lambda: not gateway.topology.transactions)
    assert begun(room, gateway, "short") == (long + 1, False)


def test_beginning_again_begins_the_time_anew(room: "Room", clock: "Clock") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway, "renewed")
    begun(room, gateway, "left")
    clock.ahead_ms += TRANSACTION_TIMEOUT_MS // 2
    assert begun(room, gateway, "renewed") == (number, False)
    clock.ahead_ms += TRANSACTION_TIMEOUT_MS // 2 + 60_000
    room.until(lambda: list(gateway.topology.transactions) == [number])


def test_a_commit_under_way_does_not_expire(room: "Room", clock: "Clock", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    begun(room, gateway, "other")
    ends[0].answers = False
    request = gateway.ask(CommitTransaction("/", "t", number, "anna", []))
    room.until(lambda: ends[0].prepared)
    clock.ahead_ms += TRANSACTION_TIMEOUT_MS
    room.until(lambda: list(gateway.topology.transactions) == [number])
    ends[0].answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, True)
    assert begun(room, gateway) == (number, True)


def test_time_goes_on_while_the_coordinator_is_away(room: "Room", clock: "Clock", ends: list["ShardEnd"]) -> None:
    room.start()
    number, _ = begun(room, room.gateway())
    room.stop()
    clock.ahead_ms += TRANSACTION_TIMEOUT_MS
    room.start()
    gateway = room.gateway("gateway-1")
    room.until(lambda: not gateway.topology.transactions)
    room.until(lambda: all(shard.decisions == [(number, [])] for shard in ends))


def test_the_time_is_noted_while_something_is_undecided(
    room: "Room", clock: "Clock", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "NOTE_SECONDS", 0.1)
    clock.ahead_ms = 1_000_000_000
    room.start()
    gateway = room.gateway()
    begun(room, gateway)
    begun_ms = clock.now_ms()
    clock.ahead_ms += 1_000_000
    request = gateway.ask(BeginTransaction("/", "t", "bob", 0))  # refused: writes nothing of its own

    def noted_ms() -> int:
        room.stop()
        store = Store.open(room.folder / "coordinator", room.boot_id)
        note = store.load(room.shards).transactions.clock
        store.close()
        assert note is not None
        room.start()
        return note.steady_ms

    room.until(lambda: request in gateway.answers)
    while noted_ms() < begun_ms + 1_000_000:
        room.settle(room.gateway("gateway-1"))
    room.stop()
    room.clock = None
    room.start()
    again = room.gateway("gateway-2")
    begun(room, again)
    (there,) = again.topology.transactions.values()
    assert there.touched_ms >= begun_ms + 1_000_000


@pytest.mark.usefixtures("ends")
def test_a_committed_name_is_free_again_after_its_time(
    room: "Room", clock: "Clock", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "SWEEP_SECONDS", 0.1)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    commit = CommitTransaction("/", "t", number, "anna", [])
    assert isinstance(room.perform(gateway, commit), Answer)
    clock.ahead_ms += COMMITTED_KEPT_MS - 60_000
    assert begun(room, gateway) == (number, True)
    clock.ahead_ms += 60_000
    assert begun(room, gateway) == (number + 1, False)
    assert not isinstance(room.perform(gateway, commit), Answer)
