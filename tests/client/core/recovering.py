"""A core that recovers: it is let in again, and what it asks for is carried out."""

from typing import Any

from shardmq.client.api.recovery import Recovered
from shardmq.client.api.url import parse
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.errors import ConnectionLost
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import (
    BasicConsume,
)
from shardmq.protocol.native.operations.connection import (
    ConnectionOpen,
    Ok,
)
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import (
    QueueDeclare,
)
from tests.client.core.harness import Waiter, hear, sent

LOST = ConnectionLost("the network is down")


class Witness:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def confirmed(self, channel: int, messages: int) -> None:
        self.told.append(("confirmed", channel, messages))

    def returned(self, frame: Any) -> None:
        self.told.append(("returned", frame))

    def blocked(self, reason: str) -> None:
        self.told.append(("blocked", reason))

    def unblocked(self) -> None:
        self.told.append("unblocked")

    def lost(self, error: Any) -> None:
        self.told.append(error)

    def recovered(self, recovered: Recovered) -> None:
        self.told.append(recovered)


def opened() -> tuple[ConnectionCore, ChannelCore, Witness]:
    """An open core that recovers, with one channel."""
    witness = Witness()
    core = ConnectionCore(parse("shardmq://localhost/"), 60, recovers=True, observer=witness)
    core.open({}, Waiter())
    hear(core, Ok(1, 0, {"product": "shardmq", "heartbeat": 60}))
    channel = core.open_channel(Waiter(), Waiter())
    hear(core, Ok(2, 1))
    sent(core)
    return core, channel, witness


def ask(core: ConnectionCore, channel: ChannelCore, kind: Any, *fields: Any, result: Any = None) -> Waiter:
    """A request that is carried out."""
    waiter = Waiter()
    core.request(channel, kind(0, 0, *fields), waiter)
    [operation] = sent(core)
    hear(core, Ok(operation.request, channel.number, result))
    assert waiter.results
    return waiter


def consume(core: ConnectionCore, channel: ChannelCore, queue: str, tag: str) -> Waiter:
    inbox = Waiter()
    core.consume(channel, BasicConsume(0, channel.number, queue, tag, False, 10), inbox, Waiter())
    [operation] = sent(core)
    hear(core, Ok(operation.request, channel.number, {"consumer": tag}))
    return inbox


def publish(core: ConnectionCore, channel: ChannelCore, *counts: int) -> list[Waiter]:
    waiters = [Waiter() for _ in counts]
    for count, waiter in zip(counts, waiters, strict=True):
        core.publish(channel, ("", "q", 1, count, records.pack_many([b"x"] * count), 0, 0, 0, 0), waiter)
    return waiters


def let_in(core: ConnectionCore) -> None:
    """The connection is accepted again."""
    core.open({}, Waiter())
    [opening] = sent(core)
    assert isinstance(opening, ConnectionOpen)
    hear(core, Ok(opening.request, 0, {"heartbeat": 60}))


def restore(core: ConnectionCore, **names: str) -> list[Operation]:
    """Carry out everything until the core is up; returns what it asked for. `names` are of queues without one."""
    asked: list[Operation] = []
    fresh = iter(names.values())
    while not core.state.is_up:
        operations = sent(core)
        assert operations, "the restoration stands still"
        asked += operations
        for operation in operations:
            result = None
            if isinstance(operation, QueueDeclare):
                result = {"queue": operation.queue or next(fresh), "messages": 0, "consumers": 0}
            if isinstance(operation, BasicConsume):
                result = {"consumer": operation.consumer}
            hear(core, Ok(operation.request, operation.channel, result))  # type: ignore[attr-defined]
    return asked
