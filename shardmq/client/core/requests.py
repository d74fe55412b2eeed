"""The requests that are answered by an Ok, as values: checked, ready to be sent, and what their answer becomes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

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
from shardmq.client.core.validation import check_name, check_names, check_number, pairs, table, words
from shardmq.errors import InvalidRequest
from shardmq.limits import ATTEMPTS_MAX, DELAY_MS_MAX, RUN_RECORDS_MAX, SLICES_MAX
from shardmq.protocol.native.operations.administration import (
    BackupBegin,
    BackupLook,
    ConnectionExpel,
    DefinitionsExport,
    DefinitionsImport,
    LimitsPut,
    PermissionDelete,
    PermissionPut,
    UserDelete,
    UserPut,
    VhostDelete,
    VhostPut,
)
from shardmq.protocol.native.operations.connection import StatusGet
from shardmq.protocol.native.operations.fields import Operation
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
    TopologyList,
)
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)

T = TypeVar("T")
Arguments = Mapping[str, Any] | None
Table = dict[str, Any]

_PEEKED: Final = Peeked()


class Request(Generic[T]):
    """A request.

    Attributes:
        kind: the operation.
        fields: its fields behind request and channel.
        shape: makes of the answer what the program gets.
    """

    __slots__ = ("fields", "kind", "shape")

    def __init__(self, shape: Callable[[Any], T], kind: Callable[..., Operation], *fields: Any) -> None:
        self.kind = kind
        self.fields = fields
        self.shape = shape


def _nothing(_: Any) -> None:
    return None


def _count(result: Any) -> int:
    return result_of(MessageCount, result).messages


def _declared(result: Any) -> QueueDeclared:
    return result_of(QueueDeclared, result)


def _as_is(result: Any) -> Any:
    return result


def _peeked(result: Any) -> list[Message]:
    return [message for frame in peeked(result) for message in Delivery(frame, _PEEKED).messages()]


def _begun(result: Any) -> Begun:
    return result_of(Begun, result)


def _visible(result: Any) -> bool:
    return result_of(Committed, result).visible


def _read(result: Any) -> tuple[list[Message], int | None]:
    runs, go_on = read(result)
    return [message for frame, first in runs for message in Delivery(frame, _PEEKED, first).messages()], go_on


def exchange_declare(
    exchange: str,
    exchange_type: str,
    durable: bool,
    arguments: Arguments,
    auto_delete: bool,
    internal: bool,
    passive: bool,
) -> Request[None]:
    """Make an exchange, or ask for it."""
    check_names(exchange=exchange, exchange_type=exchange_type)
    return Request(
        _nothing,
        ExchangeDeclare,
        exchange,
        exchange_type,
        durable,
        table("arguments", arguments),
        auto_delete,
        internal,
        passive,
    )


def exchange_delete(exchange: str, if_unused: bool) -> Request[None]:
    """Remove an exchange."""
    check_names(exchange=exchange)
    return Request(_nothing, ExchangeDelete, exchange, if_unused)


def exchange_bind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind an exchange to an exchange."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(_nothing, ExchangeBind, destination, source, routing_key, table("arguments", arguments))


def exchange_unbind(destination: str, source: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove such a binding."""
    check_names(destination=destination, source=source, routing_key=routing_key)
    return Request(_nothing, ExchangeUnbind, destination, source, routing_key, table("arguments", arguments))


def queue_declare(
    queue: str, durable: bool, arguments: Arguments, exclusive: bool, auto_delete: bool, passive: bool
) -> Request[QueueDeclared]:
    """Make a queue, or ask for it."""
    check_names(queue=queue)
    return Request(
        _declared, QueueDeclare, queue, durable, table("arguments", arguments), exclusive, auto_delete, passive
    )


def queue_delete(queue: str, if_unused: bool, if_empty: bool) -> Request[int]:
    """Remove a queue."""
    check_names(queue=queue)
    return Request(_count, QueueDelete, queue, if_unused, if_empty)


def queue_bind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Bind a queue to an exchange."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(_nothing, QueueBind, queue, exchange, routing_key, table("arguments", arguments))


def queue_unbind(queue: str, exchange: str, routing_key: str, arguments: Arguments) -> Request[None]:
    """Remove such a binding."""
    check_names(queue=queue, exchange=exchange, routing_key=routing_key)
    return Request(_nothing, QueueUnbind, queue, exchange, routing_key, table("arguments", arguments))


def queue_purge(queue: str) -> Request[int]:
    """Remove what is ready."""
    check_names(queue=queue)
    return Request(_count, QueuePurge, queue)


def queue_peek(queue: str, offset: int, count: int) -> Request[list[Message]]:
    """Look at ready messages."""
    check_names(queue=queue)
    if type(offset) is not int or type(count) is not int:
        raise TypeError(f"offset and count are int, not {offset!r} and {count!r}")
    if not 0 <= offset < 2**63:
        raise InvalidRequest(f"an offset is 0 (the head of the queue) or more, not {offset}")
    if not 1 <= count <= RUN_RECORDS_MAX:
        raise InvalidRequest(f"a peek looks at 1 to {RUN_RECORDS_MAX} messages, not {count}")
    return Request(_peeked, QueuePeek, queue, offset, count)


def queue_slices(queue: str, count: int, reservation: str) -> Request[list[QueueSlice]]:
    """Cut a queue into parts of one size."""
    check_names(queue=queue, reservation=reservation)
    check_number("a count of slices", count, 1, SLICES_MAX)
    return Request(slices, QueueSlices, queue, count, reservation)


def queue_read(
    queue: str, first: int, end: int, count: int, reservation: str
) -> Request[tuple[list[Message], int | None]]:
    """Look at the messages with these numbers."""
    check_names(queue=queue, reservation=reservation)
    check_number("first", first, 0, 2**63 - 1)
    check_number("end", end, 0, 2**63 - 1)
    check_number("a count of messages to read", count, 1, RUN_RECORDS_MAX)
    return Request(_read, QueueRead, queue, first, end, count, reservation)


def queue_reserve(queue: str, reservation: str, messages_max: int, lease_ms: int) -> Request[Reserved]:
    """Set ready messages aside."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    check_number("messages_max", messages_max, 0, 2**63 - 1)
    check_number("lease_ms", lease_ms, 0, DELAY_MS_MAX)
    return Request(reserved, QueueReserve, queue, reservation, messages_max, lease_ms)


def reservation_end(queue: str, reservation: str, acknowledge: bool, ranges: Iterable[tuple[int, int]]) -> Request[int]:
    """Be done with what is reserved, or put it back."""
    check_names(queue=queue)
    check_name("reservation", reservation)
    if type(acknowledge) is not bool:
        raise TypeError(f"acknowledge is True (done with) or False (back to the queue), not {acknowledge!r}")
    return Request(_count, ReservationEnd, queue, reservation, acknowledge, sorted(pairs("ranges", ranges)))


def transaction_begin(transaction: str, timeout_ms: int) -> Request[Begun]:
    """Make a transaction, or find it."""
    check_name("transaction", transaction)
    check_number("timeout_ms", timeout_ms, 0, DELAY_MS_MAX)
    return Request(_begun, TransactionBegin, transaction, timeout_ms)


def transaction_seal(number: int, attempt: int) -> Request[Sealed]:
    """An attempt is complete."""

    def sealed(result: Any) -> Sealed:
        return Sealed(attempt, _count(result))

    return Request(sealed, TransactionSeal, number, attempt)


def transaction_commit(transaction: str, number: int, attempts: Iterable[tuple[int, int]]) -> Request[bool]:
    """What these attempts staged appears."""
    named = pairs("sealed", attempts)
    if len(named) > ATTEMPTS_MAX:
        raise InvalidRequest(f"a commit names {ATTEMPTS_MAX} attempts at most, not {len(named)}; make them larger")
    if len({attempt for attempt, _ in named}) < len(named):
        raise InvalidRequest("an attempt stands in `sealed` more than once; each counts once")
    return Request(_visible, TransactionCommit, transaction, number, named)


def transaction_abort(transaction: str, number: int = 0) -> Request[None]:
    """Nothing of it appears. Number 0 is whichever has the name now."""
    check_name("transaction", transaction)
    return Request(_nothing, TransactionAbort, transaction, number)


def status() -> Request[Table]:
    """The state of every process and queue."""
    return Request(_as_is, StatusGet)


def topology(noun: str) -> Request[list[Table]]:
    """What there is of something."""
    check_names(noun=noun)
    return Request(_as_is, TopologyList, noun)


def vhost_put(vhost: str, description: str, tags: Sequence[str]) -> Request[None]:
    """Make a virtual host, or change it."""
    check_names(vhost=vhost)
    return Request(_nothing, VhostPut, vhost, description, words("tags", tags))


def vhost_delete(vhost: str) -> Request[None]:
    """Remove a virtual host."""
    check_names(vhost=vhost)
    return Request(_nothing, VhostDelete, vhost)


def user_put(user: str, password: str | None, password_hash: str | None, tags: Sequence[str] | None) -> Request[None]:
    """Make a user, or change it."""
    check_names(user=user)
    wanted = None if tags is None else words("tags", tags)
    return Request(_nothing, UserPut, user, password, password_hash, wanted)


def user_delete(user: str) -> Request[None]:
    """Remove a user."""
    check_names(user=user)
    return Request(_nothing, UserDelete, user)


def permission_put(user: str, vhost: str, configure: str, write: str, read: str) -> Request[None]:
    """Say what a user may do."""
    check_names(user=user, vhost=vhost)
    return Request(_nothing, PermissionPut, user, vhost, configure, write, read)


def permission_delete(user: str, vhost: str) -> Request[None]:
    """A user may do nothing there any more."""
    check_names(user=user, vhost=vhost)
    return Request(_nothing, PermissionDelete, user, vhost)


def limits_put(noun: str, name: str, limits: Mapping[str, int | None]) -> Request[None]:
    """Set or lift limits."""
    check_names(noun=noun, name=name)
    return Request(_nothing, LimitsPut, noun, name, table("limits", limits))


def backup_begin(directory: str, bytes_per_second: int) -> Request[None]:
    """Have the stores copied."""
    return Request(_nothing, BackupBegin, directory, bytes_per_second)


def backup_look() -> Request[Table]:
    """How far that is."""
    return Request(_as_is, BackupLook)


def connection_expel(connection: str, reason: str) -> Request[None]:
    """Close somebody's connection."""
    check_names(connection=connection)
    return Request(_nothing, ConnectionExpel, connection, reason)


def definitions_export() -> Request[Table]:
    """All that is durable."""
    return Request(_as_is, DefinitionsExport)


def definitions_import(definitions: Mapping[str, Any]) -> Request[Table]:
    """Make what is in definitions."""
    return Request(_as_is, DefinitionsImport, table("definitions", definitions))
