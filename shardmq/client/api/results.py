"""The broker's answers, checked and typed."""

from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import force_setattr

from shardmq.client.api.message import Message
from shardmq.errors import ProtocolError, ReplyCode
from shardmq.limits import CHANNELS_MAX, MESSAGE_BYTES_MAX
from shardmq.protocol.native.operations.basic import BasicDeliver
from shardmq.protocol.native.operations.connection import PROTOCOL_VERSION


class ServerProperties(msgspec.Struct, frozen=True):
    """What the server said of itself when the connection opened.

    Attributes:
        message_max: the largest body of a message that it takes, in bytes.
        tags: of the user, where this is an administrative session.
        record_keys: whether it takes publishes in which each message has a routing key of its own.
        put_back: whether it takes messages back that the program has not seen, as no delivery limit of a group counts.
        growth: a number that rises whenever a topic gets partitions; 0 where it tells of none.
        host: the name of its host, in a broker on several hosts; "" in others.
        partition_offsets: whether it tells where a group is in some partitions alone.
        broker: the id of the broker, which all of its gateways tell; "" of a broker that does not tell it.
    """

    product: str = ""
    version: str = ""
    protocol: int = PROTOCOL_VERSION
    heartbeat: int = 0
    frame_max: int = 0
    channel_max: int = CHANNELS_MAX
    message_max: int = MESSAGE_BYTES_MAX
    tags: tuple[str, ...] = ()
    record_keys: bool = False
    put_back: bool = False
    growth: int = 0
    host: str = ""
    partition_offsets: bool = False
    broker: str = ""


class QueuePlace(msgspec.Struct, frozen=True):
    """Where a queue is, or a partition of a topic.

    Attributes:
        partition: its number in the topic; 0 for a queue.
        queue: its name.
        shard: the number of its shard.
        host: the name of the host that leads the shard; "" in a broker on one machine, and while nobody leads.
        gateway: where clients reach that host, as host:port; "" likewise.
    """

    partition: int
    queue: str
    shard: int
    host: str
    gateway: str


class QueueDeclared(msgspec.Struct, frozen=True):
    """The state of a queue when it was declared.

    Attributes:
        queue: its name.
        messages: ready in it.
        consumers: of it.
    """

    queue: str
    messages: int
    consumers: int


class MessageCount(msgspec.Struct, frozen=True):
    """How many messages a request concerned."""

    messages: int


class Sealed(NamedTuple):
    """A complete attempt, for whoever commits the transaction. Two ints: it travels as such (JSON, pickle, a queue).

    Attributes:
        attempt: its number.
        messages: staged for it, counted once for each shard they went to.
    """

    attempt: int
    messages: int


class QueueSlice(NamedTuple):
    """A part of a queue, for whoever reads it. Three ints: it travels as such.

    Attributes:
        first: number of the first message in it.
        end: number behind the last one.
        messages: in it when the queue was cut.
    """

    first: int
    end: int
    messages: int


class Reserved(msgspec.Struct, frozen=True):
    """The state of a reservation.

    Attributes:
        messages: it holds.
        is_acknowledged: it was ended by that before; nothing is left to do.
    """

    messages: int
    is_acknowledged: bool


class SearchPage(msgspec.Struct, frozen=True):
    """What a search found in a part of a queue or partition.

    Attributes:
        messages: those that fit, each with its `position`.
        looked_at: how many were looked at for this page.
        next: the position to search on from; None at the end.
        left: about how many messages are from there on.
        cut: how many bodies were looked into in part only: they are long, or compressed and broken.
        partitions: how many partitions the topic has; 1 for a queue.
    """

    messages: list[Message]
    looked_at: int
    next: int | None
    left: int
    cut: int
    partitions: int


class DeathGroup(NamedTuple):
    """Dead letters that died of the same in the same queue; it travels as such.

    Attributes:
        queue: in which they died the last time.
        reason: of which, as rejected, expired or maxlen.
        first_ms: time of the first of these deaths, in milliseconds since 1970; None where none is known.
        last_ms: of the last, likewise.
        ranges: their positions, (first, end) each, rising.
    """

    queue: str
    reason: str
    first_ms: int | None
    last_ms: int | None
    ranges: list[tuple[int, int]]

    @property
    def messages(self) -> int:
        """How many they are."""
        return sum([end - first for first, end in self.ranges])


class DeathsPage(msgspec.Struct, frozen=True):
    """The dead letters that a search found in a part of a queue.

    Attributes:
        groups: themselves.
        looked_at: how many messages were looked at for this page.
        next: the position to search on from; None at the end.
        left: about how many messages are from there on.
        cut: how many bodies were looked into in part only.
    """

    groups: list[DeathGroup]
    looked_at: int
    next: int | None
    left: int
    cut: int = 0


class Begun(msgspec.Struct, frozen=True):
    """The state of a transaction when it was begun, or found."""

    number: int
    state: Literal["open", "committed"]


class Committed(msgspec.Struct, frozen=True):
    """Whether all of a committed transaction is in its queues."""

    visible: bool


class _Reserved(msgspec.Struct, frozen=True):
    messages: int
    state: Literal["held", "acknowledged"]


class _Read(msgspec.Struct, frozen=True):
    deliveries: list[dict[str, Any]]
    next: int | None = None


class Searched(msgspec.Struct, frozen=True):
    """The answer to a search, as it travels."""

    deliveries: list[dict[str, Any]]
    looked_at: int
    next: int | None
    left: int
    cut: int = 0
    partitions: int = 1


class _Consumer(msgspec.Struct, frozen=True):
    consumer: str


_Result = TypeVar("_Result", bound=msgspec.Struct)


def result_of(kind: type[_Result], result: object) -> _Result:
    """An answer's result as its type.

    Raises:
        ProtocolError: the server answered something else.
    """
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as fault:
        raise ProtocolError(f"the server's answer is no {kind.__name__}: {fault}", ReplyCode.SYNTAX_ERROR) from fault


def started_consumer(result: object) -> str:
    """A consumer's tag. Raises ProtocolError where it is none."""
    return result_of(_Consumer, result).consumer


def got(result: object) -> BasicDeliver:
    """The message of a BasicGet. Raises ProtocolError where it is none."""
    table = result if isinstance(result, dict) else {}
    return _delivery({"deliveries": 0, **table}, "BasicGet")


def peeked(result: object) -> list[BasicDeliver]:
    """The messages of a QueuePeek. Raises ProtocolError where it is none."""
    if not isinstance(result, list):
        raise ProtocolError("the server's answer to QueuePeek is no list", ReplyCode.SYNTAX_ERROR)
    frames = []
    for entry in result:
        table = entry if isinstance(entry, dict) else {}
        frame = _delivery({"deliveries": 0, **table, "tag": 1}, "QueuePeek")
        force_setattr(frame, "tag", 0)  # they have none
        frames.append(frame)
    return frames


def slices(result: object) -> list[QueueSlice]:
    """The slices of a QueueSlices. Raises ProtocolError where it is none."""
    return [QueueSlice(*part) for part in converted(result, list[tuple[int, int, int]], "QueueSlices")]


def read(result: object) -> tuple[list[tuple[BasicDeliver, int]], int | None]:
    """The batches of a QueueRead, each with its first message's number, and where to go on.

    Raises:
        ProtocolError: the answer is none.
    """
    answer = result_of(_Read, result)
    return numbered(answer.deliveries), answer.next


def numbered(deliveries: list[dict[str, Any]]) -> list[tuple[BasicDeliver, int]]:
    """Batches that were read, each with its first message's number. Raises ProtocolError where one is none."""
    numbers = [converted(table.get("first"), int, "QueueRead") for table in deliveries]
    return list(zip(peeked(deliveries), numbers, strict=True))


def reserved(result: object) -> Reserved:
    """What a QueueReserve holds. Raises ProtocolError where it is none."""
    answer = result_of(_Reserved, result)
    return Reserved(answer.messages, answer.state == "acknowledged")


_Plain = TypeVar("_Plain")


def converted(result: object, kind: type[_Plain], request: str) -> _Plain:
    """An answer's result as a plain type. Raises ProtocolError where it is none."""
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as fault:
        raise ProtocolError(f"the server's answer to {request}: {fault}", ReplyCode.SYNTAX_ERROR) from fault


def _delivery(table: dict[str, Any], request: str) -> BasicDeliver:
    return converted([table.get(name) for name in BasicDeliver.__struct_fields__], BasicDeliver, request)
