"""Transactions as a gateway of the test begins, commits and looks at them."""

from typing import TYPE_CHECKING

from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.coordinator import Changes
from shardmq.topology.commands import (
    BeginTransaction,
    CommitTransaction,
)

if TYPE_CHECKING:
    from tests.coordinator.conftest import GatewayEnd, Room

A, B = 2**62 + 1, 2**63 - 1
"""Attempts."""


def begun(
    room: "Room", gateway: "GatewayEnd", name: str = "t", user: str = "anna", vhost: str = "/"
) -> tuple[int, bool]:
    answer = room.perform(gateway, BeginTransaction(vhost, name, user, 0))
    assert isinstance(answer, Answer)
    number, is_committed = answer.result
    return number, is_committed


def commit(number: int, *attempts: tuple[int, int], name: str = "t", user: str = "anna") -> CommitTransaction:
    return CommitTransaction("/", name, number, user, list(attempts))


def visible(room: "Room", gateway: "GatewayEnd", command: CommitTransaction) -> bool:
    answer = room.perform(gateway, command)
    assert isinstance(answer, Answer), answer
    assert isinstance(answer.result, bool)
    return answer.result


def refused(room: "Room", gateway: "GatewayEnd", command: object) -> tuple[int, str]:
    answer = room.perform(gateway, command)  # type: ignore[arg-type]
    assert isinstance(answer, Refusal), answer
    return answer.code, answer.text


def told(gateway: "GatewayEnd") -> list[object]:
    return [change for event in gateway.heard if isinstance(event, Changes) for change in event.changes]


def counts(room: "Room", gateway: "GatewayEnd") -> tuple[int, int]:
    """Undecided transactions, and those that some shard has yet to follow, as the status tells."""
    request = 1000 + len(gateway.heard)
    gateway.dialer.post(Call(request, Inspect()))
    answer = room.until(lambda: gateway.answers.pop(request, None))
    assert isinstance(answer, Answer)
    return answer.result["transactions"], answer.result["concluding"]
