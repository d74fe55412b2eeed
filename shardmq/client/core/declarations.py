"""What a connection has declared and not deleted: what a recovery makes again."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shardmq.client.api.results import QueueDeclared, result_of
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)

_Key = tuple[bool, str, str, str, bytes]
_pack = msgspec.msgpack.Encoder(order="deterministic").encode


def _key(to_exchange: bool, destination: str, source: str, routing_key: str, arguments: dict[str, Any]) -> _Key:
    return to_exchange, destination, source, routing_key, _pack(arguments)


class Declarations:
    """The exchanges, queues and bindings of one connection; requests are noted when they were carried out.

    Attributes:
        exchanges: by name, in the order they were declared first, as all here.
        queues: by name.
        server_named: names of those queues that the server named.
        bindings: of queues and exchanges.
    """

    def __init__(self) -> None:
        self.exchanges: dict[str, ExchangeDeclare] = {}
        self.queues: dict[str, QueueDeclare] = {}
        self.server_named: set[str] = set()
        self.bindings: dict[_Key, QueueBind | ExchangeBind] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be declared again."""
        return not (self.exchanges or self.queues or self.bindings)

    def note(self, operation: Operation, result: object) -> None:
        """Note a request that was carried out."""
        noting = _NOTED.get(type(operation))
        if noting is not None:
            noting(self, operation, result)

    def unconsumed(self, queue: str) -> None:
        """Forget an auto-delete queue whose last consumer on this connection is gone."""
        declared = self.queues.get(queue)
        if declared is not None and declared.auto_delete:
            self._forget_queue(queue)

    def rename_queue(self, old: str, new: str) -> None:
        """Note that a queue the server named has another name now."""
        self.server_named.discard(old)
        self.server_named.add(new)
        self.queues = {new if name == old else name: declared for name, declared in self.queues.items()}
        bindings, self.bindings = self.bindings, {}
        for bound in bindings.values():
            moves = isinstance(bound, QueueBind) and bound.queue == old
            self._bind(replace(bound, queue=new) if moves else bound)

    def _declare_exchange(self, operation: ExchangeDeclare, _result: object) -> None:
        if not operation.passive:
            self.exchanges[operation.exchange] = operation

    def _delete_exchange(self, operation: ExchangeDelete, _result: object) -> None:
        self._forget_exchange(operation.exchange)

    def _declare_queue(self, operation: QueueDeclare, result: object) -> None:
        if operation.passive:
            return
        name = operation.queue
        if not name:
            name = result_of(QueueDeclared, result).queue
            self.server_named.add(name)
        if name not in self.server_named or not operation.queue:
            self.queues[name] = operation

    def _delete_queue(self, operation: QueueDelete, _result: object) -> None:
        self._forget_queue(operation.queue)

    def _bind(self, operation: QueueBind | ExchangeBind, _result: object = None) -> None:
        self.bindings[_key_of(operation)] = operation

    def _unbind(self, operation: QueueUnbind | ExchangeUnbind, _result: object) -> None:
        self.bindings.pop(_key_of(operation), None)
        self._source_lost(operation.exchange if isinstance(operation, QueueUnbind) else operation.source)

    def _forget_queue(self, name: str) -> None:
        self.queues.pop(name, None)
        self.server_named.discard(name)
        self._unbind_all(lambda key: not key[0] and key[1] == name)

    def _forget_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self._unbind_all(lambda key: key[2] == name or (key[0] and key[1] == name))

    def _unbind_all(self, concerns: Callable[[_Key], bool]) -> None:
        gone = [key for key in self.bindings if concerns(key)]
        for key in gone:
            self.bindings.pop(key, None)
        for source in {key[2] for key in gone}:
            self._source_lost(source)

    def _source_lost(self, exchange: str) -> None:
        """An auto-delete exchange goes with the last binding that it is the source of."""
        declared = self.exchanges.get(exchange)
        if declared is not None and declared.auto_delete and not any(key[2] == exchange for key in self.bindings):
            self._forget_exchange(exchange)


def _key_of(operation: QueueBind | QueueUnbind | ExchangeBind | ExchangeUnbind) -> _Key:
    if isinstance(operation, QueueBind | QueueUnbind):
        return _key(False, operation.queue, operation.exchange, operation.routing_key, operation.arguments)
    return _key(True, operation.destination, operation.source, operation.routing_key, operation.arguments)


_NOTED: Final[dict[type[Operation], Callable[[Declarations, Any, object], None]]] = {
    ExchangeDeclare: Declarations._declare_exchange,
    ExchangeDelete: Declarations._delete_exchange,
    ExchangeBind: Declarations._bind,
    ExchangeUnbind: Declarations._unbind,
    QueueDeclare: Declarations._declare_queue,
    QueueDelete: Declarations._delete_queue,
    QueueBind: Declarations._bind,
    QueueUnbind: Declarations._unbind,
}
