"""A core without a socket: what it says and hears, and a waiter for everything that it tells."""

from typing import Any

from shardmq.client.api.message import Delivery
from shardmq.client.api.url import parse
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.errors import (
    ShardmqError,
    Unroutable,
)
from shardmq.message import record as records
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import (
    BasicConsume,
    BasicDeliver,
)
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode, encode
from shardmq.protocol.native.operations.connection import (
    Ok,
)
from shardmq.protocol.native.operations.fields import Operation


class Waiter:
    """Everything a core may tell somebody."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.errors: list[ShardmqError] = []
        self.confirmed = 0
        self.refused: list[ShardmqError] = []
        self.came_back: list[tuple[int, Unroutable]] = []
        self.deliveries: list[Delivery] = []
        self.ends: list[ShardmqError | None] = []
        self.is_gone = False

    def done(self) -> bool:
        return self.is_gone or bool(self.results or self.errors)

    def set_result(self, result: Any, /) -> None:
        self.results.append(result)

    def set_exception(self, error: Any, /) -> None:
        self.errors.append(error)

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        self.confirmed += count if error is None else taken
        if error is not None:
            self.refused.append(error)

    def returned(self, count: int, error: Unroutable) -> bool:
        self.came_back.append((count, error))
        return False

    def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def end(self, error: ShardmqError | None) -> None:
        self.ends.append(error)

    def ack_one(self, tag: int) -> None: ...

    def ack(self, first: int, last: int) -> None: ...

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None: ...

    def renew(self, first: int, last: int) -> None: ...


def sent(core: ConnectionCore) -> list[Any]:
    """What the core says, and says no more."""
    frames = FrameReader().feed(b"".join(core.state.outgoing))
    core.state.outgoing.clear()
    return [decode(kind, payload, FROM_CLIENT) for kind, payload in frames]


def hear(core: ConnectionCore, *operations: Operation) -> None:
    """The server says something."""
    core.receive(b"".join(map(encode, operations)))


def opened(**server: Any) -> tuple[ConnectionCore, ChannelCore]:
    """An open core with one open channel; its server says so of itself."""
    core = ConnectionCore(parse("shardmq://localhost/"), 60)
    core.open({}, Waiter())
    hear(core, Ok(1, 0, {"product": "shardmq", "heartbeat": 60, **server}))
    channel = core.open_channel(Waiter(), Waiter())
    hear(core, Ok(2, 1))
    sent(core)
    return core, channel


def consuming(core: ConnectionCore, channel: ChannelCore, auto_ack: bool = False) -> Waiter:
    """A consumer "c"."""
    inbox = Waiter()
    core.consume(channel, BasicConsume(0, 1, "q", "c", auto_ack, 10), inbox, Waiter())
    [request] = sent(core)
    assert isinstance(request, BasicConsume)
    hear(core, Ok(request.request, 1, {"consumer": "c"}))
    return inbox


def delivery(tag: int, count: int, consumer: str = "c", channel: int = 1) -> BasicDeliver:
    packed = records.pack_many([b"%d" % number for number in range(tag, tag + count)])
    return BasicDeliver(channel, consumer, tag, False, "x", "k", 1, 99, 0xABC, 70, count, packed)
