"""A transaction without a socket: its clock, its steps, and what it publishes."""

from collections.abc import Generator
from typing import Any

from shardmq.client.api.results import Begun
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests.steps import ASK_AGAIN_SECONDS, Asking, Flush, Pause
from shardmq.client.core.transaction import TransactionCore
from shardmq.errors import (
    ShardmqError,
    Timeout,
)
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused
from tests.client.core.harness import Waiter, hear

SECONDS = 10.0


AWAY = "shard-2 is not there now; publish again"


class Times:
    """A clock, and what is to be done later."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.later: list[float] = []

    def __call__(self) -> float:
        return self.now


def begun(core: ConnectionCore, channel: ChannelCore, number: int = 7) -> tuple[TransactionCore, Times]:
    """An open transaction."""
    times = Times()
    transaction = TransactionCore(core, channel, "batch", 0, SECONDS, times.later.append, times)
    carry_out(transaction.begin(), times, Begun(number, "open"))
    return transaction, times


def carry_out(steps: Generator[Any, Any, Any], times: Times, *answers: Any) -> tuple[Any, list[Any]]:
    """The result of some steps and what they were: requests as (operation, fields), each given its answer or error."""
    taken: list[Any] = []
    given = list(answers)
    try:
        step = next(steps)
        while True:
            taken.append(step.request.operation if isinstance(step, Asking) else type(step))
            answer: Any = None
            if isinstance(step, Pause):
                assert step.seconds == ASK_AGAIN_SECONDS
                times.now += step.seconds
            elif isinstance(step, Asking):
                assert 0 < step.seconds <= SECONDS
                answer = given.pop(0)
                if isinstance(answer, Timeout):
                    times.now += step.seconds
            elif isinstance(step, Flush) and given and isinstance(given[0], Flushed):
                answer = given.pop(0).error
            step = steps.throw(answer) if isinstance(answer, BaseException) else steps.send(answer)
    except StopIteration as end:
        assert given == [], "not all that was to be answered was asked"
        return end.value, taken


class Flushed:
    """The answer to a flush: this error."""

    def __init__(self, error: ShardmqError) -> None:
        self.error = error


def publish(transaction: TransactionCore, channel: ChannelCore, *counts: int, mandatory: bool = False) -> list[Waiter]:
    waiters = [Waiter() for _ in counts]
    for count, waiter in zip(counts, waiters, strict=True):
        batch = ("x", "k", 3 if mandatory else 1, count, records.pack_many([b"x"] * count), 0, 0, 0, 0)
        transaction.publish(channel, batch, waiter)
    return waiters


def refuse(core: ConnectionCore, *operations: BasicPublish, code: int = 506, text: str = AWAY) -> None:
    for operation in operations:
        hear(core, BasicRefused(1, [(operation.request, operation.request)], code, text))


def confirm(core: ConnectionCore, *operations: BasicPublish) -> None:
    hear(core, BasicConfirm(1, [(operation.request, operation.request) for operation in operations]))


def named(operations: list[BasicPublish]) -> list[tuple[int, int]]:
    return [(operation.sequence, operation.count) for operation in operations]
