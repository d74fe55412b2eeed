"""The requests that are answered by an Ok, as values: checked, ready to be sent, and what their answer becomes."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Message, Peeked
from shardmq.client.api.results import (
    Begun,
    Committed,
    MessageCount,
    QueueDeclared,
    QueueSlice,
    Reserved,
    Sealed,
    peeked,
    read,
    reserved,
    result_of,
    slices,
)
from shardmq.client.core.batching import TRANSIENT_MODE
from shardmq.client.core.validation import check_name, check_names, check_number, check_prefetch, pairs, table
from shardmq.errors import InvalidRequest
from shardmq.limits import ATTEMPTS_MAX, DELAY_MS_MAX, RECORD_BATCH_RECORDS_MAX, SLICES_MAX
from shardmq.message.properties import Properties
from shardmq.protocol.native.operations.basic import BasicConsume, BasicQos
from shardmq.protocol.native.operations.fields import ClientRequest
from shardmq.protocol.native.operations.reads import QueueRead, QueueReserve, QueueSlices, ReservationEnd
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePeek,
    QueuePurge,
    QueueUnbind,
)
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from shardmq.topology.entities import REPLY_QUEUES

T = TypeVar("T")
Arguments = Mapping[str, Any] | None
Table = dict[str, Any]

_PEEKED: Final = Peeked()

REPLY_TOKEN_BYTES: Final = 24
"""Random bytes in the name of a queue of answers."""


class Request(Generic[T]):
    """A request of the program's, checked and ready to be sent.

    Attributes:
        what: the request in words, for the text of a timeout: "declaring queue 'work'".
        operation: what is asked; the connection gives it its numbers.
        shape: makes of the answer what the program gets.

    Raises:
        ProtocolError: by `shape`, for an answer that is none.
    """

    __slots__ = ("operation", "shape", "what")

    def __init__(self, what: str, shape: Callable[[object], T], operation: ClientRequest) -> None:
        self.what = what
        self.operation = operation
        self.shape = shape


def nothing(_: object) -> None:
    """The answer of a request that only succeeds or fails."""
    return


def _count(result: object) -> int:
    return result_of(MessageCount, result).messages


def _declared(result: object) -> QueueDeclared:
    return result_of(QueueDeclared, result)


def _begun(result: object) -> Begun:
    return result_of(Begun, result)


def _visible(result: object) -> bool:
    return result_of(Committed, result).visible


def exchange_declare(
    exchange: str,
    exchange_type: str,
    durable: bool,
    arguments: Arguments,
    auto_delete: bool,
    internal: bool,
    passive: bool,
) -> Request[None]:
    """Declare an exchange."""
    check_names(exchange=exchange, exchange_type=exchange_type)
    return Request(
        f"declaring exchange '{exchange}'",
        nothing,
        ExchangeDeclare(
            0, 0, exchange, exchange_type, durable, table("arguments", arguments), auto_delete, internal, passive
        ),
    )


def exchange_delete(exchange: str, if_unused: bool) -> Request[None]:
    """Delete an exchange."""
    check_names(exchange=exchange)
    return Request(f"deleting exchange '{exchange}'", nothing, ExchangeDelete(0, 0, exchange, if_unused))


def exchange_bind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind an exchange to an exchange."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(
        f"binding exchange '{destination}' to exchange '{source}'",
        nothing,
        ExchangeBind(0, 0, destination, source, routing_key, table("arguments", arguments)),
    )


def exchange_unbind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove a binding."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(
        f"unbinding exchange '{destination}' from exchange '{source}'",
        nothing,
        ExchangeUnbind(0, 0, destination, source, routing_key, table("arguments", arguments)),
    )


def queue_declare(
    queue: str, durable: bool, arguments: Arguments, exclusive: bool, auto_delete: bool, passive: bool
) -> Request[QueueDeclared]:
    """Declare a queue."""
    check_names(queue=queue)
    return Request(
        f"declaring queue '{queue}'",
        _declared,
        QueueDeclare(0, 0, queue, durable, table("arguments", arguments), exclusive, auto_delete, passive),
    )


def queue_delete(queue: str, if_unused: bool, if_empty: bool) -> Request[int]:
    """Delete a queue."""
    check_names(queue=queue)
    return Request(f"deleting queue '{queue}'", _count, QueueDelete(0, 0, queue, if_unused, if_empty))


def queue_bind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind a queue to an exchange."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(
        f"binding queue '{queue}' to exchange '{exchange}'",
        nothing,
        QueueBind(0, 0, queue, exchange, routing_key, table("arguments", arguments)),
    )


def queue_unbind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove a binding."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(
        f"unbinding queue '{queue}' from exchange '{exchange}'",
        nothing,
        QueueUnbind(0, 0, queue, exchange, routing_key, table("arguments", arguments)),
    )


def queue_purge(queue: str) -> Request[int]:
    """Purge a queue."""
    check_names(queue=queue)
    return Request(f"purging queue '{queue}'", _count, QueuePurge(0, 0, queue))


def queue_peek(queue: str, offset: int, count: int) -> Request[list[Message]]:
    """Peek at ready messages."""
    check_names(queue=queue)
    if type(offset) is not int or type(count) is not int:
        raise TypeError(f"offset and count are int, not {offset!r} and {count!r}")
    if not 0 <= offset < 2**63:
        raise InvalidRequest(f"an offset is 0 (the head of the queue) or more, not {offset}")
    if not 1 <= count <= RECORD_BATCH_RECORDS_MAX:
        raise InvalidRequest(f"a peek looks at 1 to {RECORD_BATCH_RECORDS_MAX} messages, not {count}")

    def shape(result: object) -> list[Message]:
        return [message for frame in peeked(result) for message in Delivery(frame, _PEEKED, queue).messages()]

    return Request(f"peeking at queue '{queue}'", shape, QueuePeek(0, 0, queue, offset, count))


def queue_slices(queue: str, count: int, reservation: str) -> Request[list[QueueSlice]]:
    """Cut a queue into slices of about one size."""
    check_names(queue=queue, reservation=reservation)
    check_number("a count of slices", count, 1, SLICES_MAX)
    return Request(f"slicing queue '{queue}'", slices, QueueSlices(0, 0, queue, count, reservation))


def queue_read(
    queue: str, first: int, end: int, count: int, reservation: str
) -> Request[tuple[list[Message], int | None]]:
    """Read the messages with these numbers."""
    check_names(queue=queue, reservation=reservation)
    check_number("first", first, 0, 2**63 - 1)
    check_number("end", end, 0, 2**63 - 1)
    check_number("a count of messages to read", count, 1, RECORD_BATCH_RECORDS_MAX)

    def shape(result: object) -> tuple[list[Message], int | None]:
        batches, go_on = read(result)
        unpacked = [Delivery(frame, _PEEKED, queue, position).messages() for frame, position in batches]
        return [message for messages in unpacked for message in messages], go_on

    return Request(f"reading queue '{queue}'", shape, QueueRead(0, 0, queue, first, end, count, reservation))


def queue_reserve(queue: str, reservation: str, messages_max: int, lease_ms: int) -> Request[Reserved]:
    """Reserve ready messages."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    check_number("messages_max", messages_max, 0, 2**63 - 1)
    check_number("lease_ms", lease_ms, 0, DELAY_MS_MAX)
    return Request(
        f"reserving messages of queue '{queue}' as '{reservation}'",
        reserved,
        QueueReserve(0, 0, queue, reservation, messages_max, lease_ms),
    )


def reservation_end(queue: str, reservation: str, acknowledge: bool, ranges: Iterable[tuple[int, int]]) -> Request[int]:
    """End a reservation: acknowledge what is reserved, or put it back."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    if type(acknowledge) is not bool:
        raise TypeError(f"acknowledge is True (done with) or False (back to the queue), not {acknowledge!r}")
    return Request(
        f"ending reservation '{reservation}' of queue '{queue}'",
        _count,
        ReservationEnd(0, 0, queue, reservation, acknowledge, sorted(pairs("ranges", ranges))),
    )


def basic_consume(
    queue: str, consumer_tag: str, prefetch: int, auto_ack: bool, exclusive: bool, arguments: Arguments
) -> BasicConsume:
    """Begin a consumer; its inbox is handed to `ConnectionCore.consume`."""
    check_names(queue=queue, consumer_tag=consumer_tag)
    check_prefetch(prefetch)
    return BasicConsume(0, 0, queue, consumer_tag, auto_ack, prefetch, table("arguments", arguments), exclusive)


def reply_queue() -> str:
    """A new name for a queue of answers, which nobody guesses; consuming it makes the queue."""
    return REPLY_QUEUES + secrets.token_urlsafe(REPLY_TOKEN_BYTES)


def call_properties(properties: Properties | None, reply_to: str, correlation_id: str, seconds: float) -> Properties:
    """The properties of a request whose answer is waited for, for so many seconds."""
    given = properties or Properties()
    return replace(
        given,
        reply_to=reply_to,
        correlation_id=correlation_id,
        delivery_mode=TRANSIENT_MODE if given.delivery_mode is None else given.delivery_mode,
        expiration=str(int(min(seconds * 1000, DELAY_MS_MAX))) if given.expiration is None else given.expiration,
    )


def basic_qos(consumer_tag: str, prefetch: int) -> Request[None]:
    """Change a consumer's prefetch."""
    check_names(consumer_tag=consumer_tag)
    check_prefetch(prefetch)
    return Request(
        f"changing the prefetch of consumer '{consumer_tag}'", nothing, BasicQos(0, 0, consumer_tag, prefetch)
    )


def transaction_begin(transaction: str, timeout_ms: int) -> Request[Begun]:
    """Begin a transaction, or find it."""
    check_name("transaction", transaction)
    check_number("timeout_ms", timeout_ms, 0, DELAY_MS_MAX)
    return Request(f"beginning transaction '{transaction}'", _begun, TransactionBegin(0, 0, transaction, timeout_ms))


def transaction_seal(number: int, attempt: int) -> Request[Sealed]:
    """Seal an attempt."""

    def sealed(result: object) -> Sealed:
        return Sealed(attempt, _count(result))

    return Request(
        f"sealing attempt {attempt} of transaction number {number}", sealed, TransactionSeal(0, 0, number, attempt)
    )


def transaction_commit(transaction: str, number: int, attempts: Iterable[tuple[int, int]]) -> Request[bool]:
    """Commit attempts."""
    named = pairs("sealed", attempts)
    if len(named) > ATTEMPTS_MAX:
        raise InvalidRequest(f"a commit names {ATTEMPTS_MAX} attempts at most, not {len(named)}; make them larger")
    if len({attempt for attempt, _ in named}) < len(named):
        raise InvalidRequest("an attempt stands in `sealed` more than once; each counts once")
    return Request(
        f"committing transaction '{transaction}'", _visible, TransactionCommit(0, 0, transaction, number, named)
    )


def transaction_abort(transaction: str, number: int = 0) -> Request[None]:
    """Abort a transaction; number 0 is whichever has the name now."""
    check_name("transaction", transaction)
    return Request(f"aborting transaction '{transaction}'", nothing, TransactionAbort(0, 0, transaction, number))
