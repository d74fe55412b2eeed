"""How long a coordinator waits for gateways that one before it had."""

from dataclasses import dataclass

from shardmq.bus.messages.stores import LinkedGateways
from shardmq.coordinator.state.returning import Returning

SECONDS = 3.0


@dataclass
class Told:
    """What a shard has said of gateways."""

    told: LinkedGateways | None
    looks: int = 0

    def look(self) -> None:
        self.looks += 1


@dataclass
class Shard:
    """What a coordinator has of a shard."""

    sessions: Told
    is_open: bool = True


def old(*names: str) -> Shard:
    return Shard(Told(LinkedGateways(SECONDS, list(names))))


def new(*names: str) -> Shard:
    return Shard(Told(LinkedGateways(SECONDS - 1, list(names))))


def is_over(shards: list[Shard], here: set[str], now: float = 1.0) -> bool:
    returning = Returning(SECONDS, 0.0, shards)
    assert not returning.is_over
    returning.look(now, here)
    return returning.is_over


def test_it_is_over_once_all_are_here_that_shards_know() -> None:
    assert is_over([old("a", "b"), new("b")], {"a", "b", "c"})
    assert not is_over([old("a"), new("b")], {"a"})
    assert is_over([old()], set())


def test_a_shard_that_just_began_may_not_know_all() -> None:
    assert not is_over([new("a"), new("a")], {"a"})
    assert is_over([new("a"), old("a")], {"a"})


def test_all_shards_that_can_be_asked_are_asked_again_and_again() -> None:
    silent, away = Shard(Told(None)), Shard(Told(None), is_open=False)
    returning = Returning(SECONDS, 0.0, [old("a"), silent, away])
    returning.look(0.5, {"a"})
    assert not returning.is_over
    assert (silent.sessions.looks, away.sessions.looks) == (1, 0)
    silent.sessions.told = LinkedGateways(1.0, ["a"])
    returning.look(0.6, {"a"})
    assert returning.is_over
    returning.look(0.7, set())
    assert returning.is_over


def test_nobody_is_waited_for_longer_than_it_takes_to_come() -> None:
    assert not is_over([new("a")], set(), now=SECONDS - 0.1)
    assert is_over([new("a")], set(), now=SECONDS)


def test_where_nobody_is_asked_only_time_tells() -> None:
    assert not is_over([], {"a"})
    assert is_over([], {"a"}, now=SECONDS)
    assert Returning(0.0, 5.0).is_over
