"""The nouns of the broker: virtual hosts, exchanges, queues, bindings, users, permissions. Plain frozen values, the
same in every process, on the bus and in the coordinator's store.
"""

from typing import Any, Final

import msgspec

from shardmq.errors import AccessRefused, InvalidRequest
from shardmq.limits import NAME_BYTES_MAX

DEFAULT_VHOST: Final = "/"
DEFAULT_EXCHANGE: Final = ""
"""Routes to the queue that the routing key names. It is everywhere, and nowhere declared."""


class Exchange(msgspec.Struct, frozen=True, array_like=True):
    """Where publishers send to; `type` names the rule (`shardmq.topology.exchanges`)."""

    vhost: str
    name: str
    type: str
    durable: bool = True
    arguments: dict[str, Any] = {}
    auto_delete: bool = False
    internal: bool = False


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """Where messages wait. `id` is given once and never used again; `shard` is where its messages are, for ever.

    `owner` names the connection an exclusive queue belongs to (`Session.identity` of the gateway); "" for all others.
    """

    vhost: str
    name: str
    id: int
    shard: int
    durable: bool = True
    arguments: dict[str, Any] = {}
    auto_delete: bool = False
    owner: str = ""


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """`destination` gets what is published to `exchange` with a routing key that matches `key`.

    `destination` is a queue, or another exchange where `to_exchange`.
    """

    vhost: str
    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any] = {}
    to_exchange: bool = False


class Vhost(msgspec.Struct, frozen=True, array_like=True):
    """A world of its own: exchanges, queues and bindings with nothing in common with those of another.

    `limits` has "max-connections" and "max-queues", where they are limited.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}


class User(msgspec.Struct, frozen=True, array_like=True):
    """`password` is a salted hash (`shardmq.topology.passwords`), never the password; "" lets nobody in by password.

    `limits` has "max-connections" and "max-channels", where they are limited.
    """

    name: str
    password: str
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}


class Permission(msgspec.Struct, frozen=True, array_like=True):
    """What a user may do in a virtual host: regular expressions that the names of things must match.

    As in RabbitMQ, an expression matches when it is found anywhere in the name; "" matches nothing, ".*" everything.
    The default exchange is called "amq.default" here.
    """

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class OpenTransaction(msgspec.Struct, frozen=True, array_like=True):
    """Messages that appear whole or not at all, undecided so far. `number` is given once and never used again.

    It ends by itself `timeout_ms` after `touched_ms` (steady time), when somebody last began work for it. `user` began
    it, and alone may publish to it and decide about it, beside administrators.
    """

    vhost: str
    name: str
    number: int
    user: str
    timeout_ms: int
    touched_ms: int


REPLY_QUEUES: Final = "amq.rabbitmq.reply-to."
"""What names of queues begin with that gateways make for answers to AMQP clients' requests. They are published to, and
nothing else is done with them by name."""

RESERVED_TRANSACTIONS: Final = "amq.tx."
"""What names of transactions begin with that gateways make for AMQP's. Nobody else has them, and nobody commits one of
them again after it was answered: they are soon forgotten."""

USER_TAGS: Final = ("administrator", "monitoring", "policymaker", "management", "impersonator")
"""Tags with a meaning; RabbitMQ's. Others may be given and mean nothing."""

PREDECLARED: Final = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)
"""Exchanges every virtual host is born with: (name, type)."""


def check_name(kind: str, name: str) -> None:
    """Refuse names that no broker could hold.

    Args:
        kind: the word for it in the error, as "queue".
        name: the name asked for.

    Raises:
        InvalidRequest: empty, over 255 bytes of UTF-8, or with a control character in it.
    """
    if not name:
        raise InvalidRequest(f"a {kind} needs a name; got an empty one")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise InvalidRequest(f"{kind} name '{name[:32]}…' is over {NAME_BYTES_MAX} bytes; choose a shorter one")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidRequest(f"{kind} name {name!r} has a control character in it; choose another")


ARGUMENTS_DEPTH_MAX: Final = 16
"""How deep tables and lists in arguments may nest: they travel through every process and are kept for ever."""


def check_nesting(arguments: Any, depth: int = 0) -> None:
    """Refuse arguments that not every process could take: nested too deep, or with keys that are no strings.

    Raises:
        InvalidRequest: they are.
    """
    if depth > ARGUMENTS_DEPTH_MAX:
        raise InvalidRequest(f"arguments nest deeper than {ARGUMENTS_DEPTH_MAX} levels; make them flatter")
    if isinstance(arguments, dict):
        for key, value in arguments.items():
            if not isinstance(key, str):
                raise InvalidRequest(f"arguments have the key {key!r}; keys are strings")
            check_nesting(value, depth + 1)
    elif isinstance(arguments, list):
        for value in arguments:
            check_nesting(value, depth + 1)


def check_name_free(kind: str, name: str) -> None:
    """Refuse names that belong to the broker (`amq.…`, as in RabbitMQ).

    Raises:
        AccessRefused: the name begins with `amq.`.
        InvalidRequest: as `check_name`.
    """
    check_name(kind, name)
    if name.startswith("amq."):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'; choose another name")
