"""What a user may do in a virtual host: the permission there, applied to names."""

from functools import lru_cache
from typing import Final

import regex

from shardmq.errors import AccessRefused
from shardmq.gateway.links.publish_plan import PublishPlan
from shardmq.gateway.links.shard import ShardLink
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.topology.entities import DEFAULT_EXCHANGE, Permission
from shardmq.topology.topology import Topology

DEFAULT_EXCHANGE_NAME: Final = "amq.default"
"""What expressions see where the default exchange is meant, which has no name of its own (RabbitMQ's rule)."""

NAMES_MAX: Final = 4096
"""Names remembered as allowed, for each verb; past it they are forgotten, and matched again."""

MATCH_SECONDS: Final = 0.05
"""Matching an expression with a name may take this long: most take a few microseconds, and a few, as `(a+)+$`, twice as
long for every further character. While one is matched, nobody else is served."""


PlanKey = tuple[int, bytes | bool]
"""The id of a publish's method, and its property list; or whether it is persistent, if nothing else in it matters."""


class _Expression:
    """A permission's expression.

    One that took too long once is found nowhere from then on, and so is one that nests deeper than a gateway reads
    anything: the coordinator, which looked at it first, has more room on its stack.

    Attributes:
        is_too_slow: whether that has happened.
    """

    __slots__ = ("_pattern", "is_too_slow")

    def __init__(self, expression: str) -> None:
        self.is_too_slow = False
        try:
            self._pattern = regex.compile(expression or "^$")
        except RecursionError:
            self.is_too_slow = True

    def is_in(self, name: str) -> bool:
        """Whether it is found in a name."""
        if self.is_too_slow:
            return False
        try:
            return self._pattern.search(name, timeout=MATCH_SECONDS) is not None
        except TimeoutError:
            self.is_too_slow = True
            return False


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> _Expression:
    return _Expression(expression)


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

    __slots__ = ("__weakref__", "_configurable", "_readable", "_topology", "_user", "_vhost", "_writable", "plans")

    def __init__(self, topology: Topology, user: str, vhost: str) -> None:
        self._topology = topology
        self._user = user
        self._vhost = vhost
        self._configurable: set[str] = set()
        self._writable: set[str] = set()
        self._readable: set[str] = set()
        self.plans: dict[PlanKey, tuple[ShardLink, PublishPlan, BasicPublish]] = {}

    def forget(self) -> None:
        """Forget what was allowed: the permissions or the topology may have changed."""
        self.plans.clear()
        self._configurable.clear()
        self._writable.clear()
        self._readable.clear()

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

    def _check(self, verb: str, kind: str, name: str, allowed: set[str]) -> None:
        permission: Permission | None = self._topology.permissions.get((self._user, self._vhost))
        shown = DEFAULT_EXCHANGE_NAME if name == DEFAULT_EXCHANGE else name
        expression = None if permission is None else _compiled(getattr(permission, verb))
        if expression is None or not expression.is_in(shown):
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
