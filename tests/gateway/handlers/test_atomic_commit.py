"""A commit of an AMQP channel that is staged on its shards: what becomes of it while they still read it."""

from typing import Any, cast

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import StillPreparing
from shardmq.gateway.handlers.atomic_commit import ATTEMPT, _Staged
from shardmq.gateway.session.client import Client
from shardmq.topology.commands import AbortTransaction, CommitTransaction


class Asker:
    """A client of the gateway, and what is asked of the coordinator for it."""

    vhost, user = "/", "guest"

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Reply]] = []

    def perform(self, command: Any, reply: Reply) -> None:
        self.asked.append((command, reply))


def committing(outcomes: list[Outcome]) -> Asker:
    asker = Asker()
    staged = _Staged(cast("Client", asker), {}, outcomes.append)
    staged._number = 7
    staged._commit(3)
    return asker


def reading(left: int) -> StillPreparing:
    return StillPreparing.of(["shard-0"], "amq.tx.1", 100 - left, 100)


def test_it_is_asked_for_again_as_long_as_shards_get_on() -> None:
    outcomes: list[Outcome] = []
    asker = committing(outcomes)
    for left in (90, 50, 10):
        asker.asked[-1][1](reading(left))
    assert outcomes == []
    commands = [command for command, _ in asker.asked]
    assert [type(command) for command in commands] == [CommitTransaction] * 4
    assert all(command.attempts == [(ATTEMPT, 3)] and command.number == 7 for command in commands)


def test_it_is_aborted_where_they_do_not() -> None:
    outcomes: list[Outcome] = []
    asker = committing(outcomes)
    for left in (90, 90):
        asker.asked[-1][1](reading(left))
    command, reply = asker.asked[-1]
    assert isinstance(command, AbortTransaction)
    reply(None)
    assert [type(outcome) for outcome in outcomes] == [StillPreparing]
