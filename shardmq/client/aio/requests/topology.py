"""Exchanges, queues and bindings: part of Channel."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from shardmq.client.api.results import QueueDeclared
from shardmq.client.core.requests import topology, transactions
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class TopologyRequests(ABC):
    """RabbitMQ's verbs for exchanges, queues and bindings: part of a channel.

    Each may raise AccessRefused where the user may not do that, and the errors that `Channel` names.
    """

    @abstractmethod
    async def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    async def exchange_declare(
        self,
        exchange: str,
        exchange_type: str = "direct",
        durable: bool = False,
        arguments: Mapping[str, Any] | None = None,
        auto_delete: bool = False,
        internal: bool = False,
        passive: bool = False,
    ) -> None:
        """Declare an exchange: make it, or find the same one there.

        Args:
            exchange: its name.
            exchange_type: direct, fanout, topic, headers or x-consistent-hash.
            durable: whether it survives a restart.
            arguments: alternate-exchange, and what its type knows.
            auto_delete: it goes with the last of its bindings.
            internal: only other exchanges publish to it.
            passive: only ask whether it is there.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
            NotFound: passive, and there is none.
        """
        await self._ask(
            topology.exchange_declare(exchange, exchange_type, durable, arguments, auto_delete, internal, passive)
        )

    async def exchange_delete(self, exchange: str, if_unused: bool = False) -> None:
        """Delete an exchange and its bindings.

        Raises:
            PreconditionFailed: if_unused, and something is bound to it.
        """
        await self._ask(topology.exchange_delete(exchange, if_unused))

    async def exchange_bind(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Bind an exchange to another: it gets what is published there with a routing key that matches.

        Args:
            destination: the exchange that gets the messages.
            source: the exchange that they are published to.
            routing_key: what messages' routing keys are matched with, as the source's type does.
            arguments: of the binding, as of a headers exchange.

        Raises:
            NotFound: there is no such exchange.
        """
        await self._ask(topology.exchange_bind(destination, source, routing_key, arguments))

    async def exchange_unbind(
        self, destination: str, source: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Remove a binding of an exchange to another; nothing happens when there is none.

        Args:
            destination: the exchange that gets the messages.
            source: the exchange that they are published to.
            routing_key: what messages' routing keys are matched with, as the source's type does.
            arguments: of the binding, as of a headers exchange.
        """
        await self._ask(topology.exchange_unbind(destination, source, routing_key, arguments))

    async def queue_declare(
        self,
        queue: str = "",
        durable: bool = False,
        arguments: Mapping[str, Any] | None = None,
        exclusive: bool = False,
        auto_delete: bool = False,
        passive: bool = False,
    ) -> QueueDeclared:
        """Declare a queue: make it, or find the same one there.

        Args:
            queue: its name; the server makes one up for "".
            durable: whether it, and the persistent messages in it, survive a restart.
            arguments: x-message-ttl, x-max-length and the like; those not known are refused.
            exclusive: it is this connection's alone, and goes with it.
            auto_delete: it goes with the last of its consumers.
            passive: only ask for it.

        Returns:
            Its name, how many messages are ready in it, and how many consumers it has.

        Raises:
            PreconditionFailed: there is one of that name with other settings.
            ResourceLocked: it is another connection's alone.
            NotFound: passive, and there is none.
        """
        return await self._ask(topology.queue_declare(queue, durable, arguments, exclusive, auto_delete, passive))

    async def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue and its bindings; returns how many ready messages went with it.

        Raises:
            PreconditionFailed: if_unused, and it has consumers; or if_empty, and it has ready messages.
        """
        return await self._ask(topology.queue_delete(queue, if_unused, if_empty))

    async def queue_bind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Bind a queue to an exchange: it gets what is published there with a routing key that matches.

        Args:
            queue: its name.
            exchange: the exchange's name.
            routing_key: what messages' routing keys are matched with, as the exchange's type does.
            arguments: of the binding, as of a headers exchange.

        Raises:
            NotFound: there is no such queue or exchange.
        """
        await self._ask(topology.queue_bind(queue, exchange, routing_key, arguments))

    async def queue_unbind(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Remove a binding of a queue; nothing happens when there is none.

        Args:
            queue: its name.
            exchange: the exchange's name.
            routing_key: what messages' routing keys are matched with, as the exchange's type does.
            arguments: of the binding, as of a headers exchange.
        """
        await self._ask(topology.queue_unbind(queue, exchange, routing_key, arguments))

    async def queue_purge(self, queue: str) -> int:
        """Remove a queue's ready messages; returns how many.

        Raises:
            NotFound: there is no such queue.
        """
        return await self._ask(topology.queue_purge(queue))

    async def transaction_abort(self, name: str) -> None:
        """Abort the transaction of that name, whoever began it; nothing happens when there is none.

        Raises:
            PreconditionFailed: it is committed.
            AccessRefused: it is somebody else's, and the user no administrator.
        """
        await self._ask(transactions.transaction_abort(name))
