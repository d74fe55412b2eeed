"""What a user may do in a virtual host: the permission there, applied to names."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import regex

from shardmq.errors import AccessRefused
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.shard import ShardLink
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.topology.entities import DEFAULT_EXCHANGE, Permission
from shardmq.topology.expressions import compiled
from shardmq.topology.parameters.shovel import RUNNER
from shardmq.topology.topology import Topology

DEFAULT_EXCHANGE_NAME: Final = "amq.default"
"""What expressions see where the default exchange is meant, which has no name of its own (RabbitMQ's rule)."""

DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"

NAMES_MAX: Final = 4096
"""Names remembered as allowed, for each verb; past it they are forgotten, and matched again."""

PlanKey = tuple[int, bytes | bool]
"""The id of a publish's method, and its property list; or whether it is persistent, if nothing else in it matters."""


class Permissions:
    """What one user may do in one virtual host.

    Each check takes the name of a queue or exchange, and for the error which of the two it is, and raises AccessRefused
    where the permission does not allow it.

    All sessions of that user there have the same one (`GatewayState.permissions`). Whoever owns it calls `forget` when
    permissions or the topology change: what was allowed is remembered by name, so that asking again costs one lookup
    (0.05 µs; a publish asks).

    Args:
        topology: the replica that has the permissions.
        user: whose permissions.
        vhost: where.

    Attributes:
        plans: how AMQP publishes go that the user may make, by `PlanKey`, until permissions or the topology change;
            with the method, whose id is its own while it is here.
    """

    __slots__ = (
        "__weakref__",
        "_configurable",
        "_readable",
        "_topics",
        "_topology",
        "_user",
        "_vhost",
        "_writable",
        "plans",
    )

    def __init__(self, topology: Topology, user: str, vhost: str) -> None:
        self._topology = topology
        self._user = user
        self._vhost = vhost
        self._configurable: set[str] = set()
        self._writable: set[str] = set()
        self._readable: set[str] = set()
        self.plans: dict[PlanKey, tuple[ShardLink, PublishPlan, BasicPublish]] = {}
        self._topics: set[tuple[str, str, str]] = set()

    def forget(self) -> None:
        """Forget what was allowed: the permissions or the topology may have changed."""
        self.plans.clear()
        self._configurable.clear()
        self._writable.clear()
        self._readable.clear()
        self._topics.clear()

    def check_configure(self, name: str, kind: str = "queue") -> None:
        """Refuse to declare or delete a queue or exchange, unless the user may."""
        if name not in self._configurable:
            self._check("configure", kind, name, self._configurable)

    def check_write(self, name: str, kind: str = "exchange") -> None:
        """Refuse to publish to an exchange, or to bind a queue or exchange to another, unless the user may."""
        if name not in self._writable:
            self._check("write", kind, name, self._writable)

    def check_read(self, name: str, kind: str = "queue") -> None:
        """Refuse to consume from a queue, or to bind something to an exchange, unless the user may."""
        if name not in self._readable:
            self._check("read", kind, name, self._readable)

    def check_dead_letters(self, queue: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a dead-letter exchange in arguments, unless the user may read the queue and write to the exchange."""
        exchange = arguments.get(DEAD_LETTER_EXCHANGE)
        if isinstance(exchange, str):
            self.check_read(queue, "queue")
            self.check_write(exchange, "exchange")

    def check_topic(self, verb: str, exchange: str, key: str) -> None:
        """Refuse to publish with a routing key to a topic exchange ("write"), or to bind by it there ("read").

        Raises:
            AccessRefused: a topic permission of the user for that exchange does not allow it.
        """
        if self._topology.topic_permissions and (verb, exchange, key) not in self._topics:
            self._check_topic(verb, exchange, key)

    def check_topics(self, verb: str, exchange: str, keys: Iterable[str]) -> None:
        """Refuse what `check_topic` refuses, for any of several routing keys."""
        if self._topology.topic_permissions:
            for key in keys:
                self.check_topic(verb, exchange, key)

    def is_limited(self, exchange: str) -> bool:
        """Whether a topic permission limits the user's keys at an exchange: a topic, or one that is not there yet."""
        declared = self._topology.exchanges.get((self._vhost, exchange))
        may_be_topic = declared is None or declared.type == "topic"
        return may_be_topic and exchange in self._topology.topic_permissions.get((self._user, self._vhost), {})

    def _check_topic(self, verb: str, exchange: str, key: str) -> None:
        allowed = self._topology.topic_permissions.get((self._user, self._vhost), {}).get(exchange)
        declared = self._topology.exchanges.get((self._vhost, exchange))
        if allowed is not None and declared is not None and declared.type == "topic":
            expression = getattr(allowed, verb) or "^$"
            for name, value in (("{username}", self._user), ("{vhost}", self._vhost)):
                expression = expression.replace(name, regex.escape(value))
            if not compiled(expression).is_in(key):
                raise AccessRefused(
                    f"access to topic '{key}' in exchange '{exchange}' in vhost '{self._vhost}' refused for user "
                    f"'{self._user}'"
                )
        if len(self._topics) >= NAMES_MAX:
            self._topics.clear()
        self._topics.add((verb, exchange, key))

    def _check(self, verb: str, kind: str, name: str, allowed: set[str]) -> None:
        permission: Permission | None = self._topology.permissions.get((self._user, self._vhost))
        shown = DEFAULT_EXCHANGE_NAME if name == DEFAULT_EXCHANGE else name
        expression = None if permission is None else compiled(getattr(permission, verb) or "^$")
        is_allowed = self._user == RUNNER and bool(self._vhost)
        if not is_allowed and (expression is None or not expression.is_in(shown)):
            why = (
                ": the expression nests too deep or takes too long to match; write a simpler one"
                if (expression is not None and expression.is_too_slow)
                else ""
                if self._vhost
                else ": an administrative session is in none; open the virtual host in a connection of its own"
            )
            raise AccessRefused(
                f"{verb} access to {kind} '{shown}' in vhost '{self._vhost}' refused for user '{self._user}'{why}"
            )
        if len(allowed) >= NAMES_MAX:
            allowed.clear()
        allowed.add(name)
