"""Virtual hosts, exchanges, queues, bindings, users, permissions, policies, parameters, open transactions.

They are frozen values, the same in every process, on the bus and in the coordinator's store.
"""

from typing import Any, Final

import msgspec

from shardmq.errors import AccessRefused, InvalidRequest
from shardmq.limits import NAME_BYTES_MAX

DEFAULT_VHOST: Final = "/"
"""The virtual host that a new broker has."""

DEFAULT_EXCHANGE: Final = ""
"""The exchange that routes to the queue with the routing key as its name. Every virtual host has it; it is not
declared."""


class Exchange(msgspec.Struct, frozen=True, array_like=True):
    """Where publishers send messages.

    Attributes:
        vhost: its virtual host.
        name: unique in the virtual host.
        type: one of `shardmq.topology.exchanges.TYPES`.
        durable: whether it survives a restart.
        arguments: as declared.
        auto_delete: whether it is deleted with its last binding.
        internal: whether only other exchanges and the broker publish to it.
    """

    vhost: str
    name: str
    type: str
    durable: bool = True
    arguments: dict[str, Any] = {}
    auto_delete: bool = False
    internal: bool = False


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """Where messages wait for consumers.

    Attributes:
        vhost: its virtual host.
        name: unique in the virtual host.
        id: never given to another queue.
        shard: the shard that stores its messages, for ever.
        durable: whether it survives a restart.
        arguments: as declared.
        auto_delete: whether it is deleted with its last consumer.
        owner: for an exclusive queue, the connection it belongs to; "" for all others.
        policy: arguments that policies give it: those that it was not declared with, or with other values. Shards have
            them; the topology leaves them out, as they follow from its policies.
    """

    vhost: str
    name: str
    id: int
    shard: int
    durable: bool = True
    arguments: dict[str, Any] = {}
    auto_delete: bool = False
    owner: str = ""
    policy: dict[str, Any] = {}

    @property
    def effective(self) -> dict[str, Any]:
        """The arguments that count: as declared, and as policies change them."""
        return {**self.arguments, **self.policy} if self.policy else self.arguments


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """Has messages of an exchange go to a queue, or to another exchange.

    Attributes:
        vhost: the virtual host of both ends.
        exchange: the source.
        destination: name of the queue or exchange.
        key: the binding key, which the exchange's type compares with routing keys.
        arguments: as given; exchanges of type headers compare them with a message's headers.
        to_exchange: whether the destination is an exchange.
    """

    vhost: str
    exchange: str
    destination: str
    key: str
    arguments: dict[str, Any] = {}
    to_exchange: bool = False


class Topic(msgspec.Struct, frozen=True, array_like=True):
    """A log of messages in partitions, which are streams, and the exchange of its name that picks one of them.

    Partition `i` is the queue `partition_name(name, i)`, bound to the exchange with the key `str(i)`.

    Attributes:
        vhost: its virtual host.
        name: unique among the topics and the exchanges of the virtual host.
        partitions: ids of its queues, in order; partitions are added, never removed.
        arguments: as declared.
        epoch: 1 when it is new, and one more each time partitions are added.
        growth: for each time partitions were added: the number of the next new transaction then, and how many
            partitions there had been.
    """

    vhost: str
    name: str
    partitions: tuple[int, ...]
    arguments: dict[str, Any] = {}
    epoch: int = 1
    growth: tuple[tuple[int, int], ...] = ()

    @property
    def grown_to(self) -> int:
        """The id of the first queue that was added last; 0 where none was added."""
        return self.partitions[self.growth[-1][1]] if self.growth else 0

    @property
    def declared_with(self) -> int:
        """How many partitions it had before any were added."""
        return self.growth[0][1] if self.growth else len(self.partitions)


class Vhost(msgspec.Struct, frozen=True, array_like=True):
    """A namespace of exchanges, queues and bindings with permissions of its own.

    Attributes:
        name: unique in the broker.
        description: for people.
        tags: for people.
        limits: "max-connections" and "max-queues", where they are limited.
    """

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}


class User(msgspec.Struct, frozen=True, array_like=True):
    """Who may log in.

    Attributes:
        name: unique in the broker.
        password: a salted hash (`shardmq.topology.passwords`); "" lets nobody in by password.
        tags: roles such as "administrator".
        limits: "max-connections" and "max-channels", where they are limited.
    """

    name: str
    password: str
    tags: tuple[str, ...] = ()
    limits: dict[str, int] = {}


class Permission(msgspec.Struct, frozen=True, array_like=True):
    """What a user may do in a virtual host.

    The three permissions are regular expressions. As in RabbitMQ, an expression matches a name when it is found
    anywhere in it; "" matches nothing, ".*" everything. The default exchange has the name "amq.default" here.

    Attributes:
        user: the user's name.
        vhost: the virtual host.
        configure: names of what the user may declare and delete.
        write: names of what the user may publish to and bind.
        read: names of what the user may consume from, purge and bind to.
    """

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermission(msgspec.Struct, frozen=True, array_like=True):
    """Which routing keys a user may use with a topic exchange. Where there is none for an exchange, any.

    In the expressions, {username}, {vhost} and {client_id} stand for what the connection has for them.

    Attributes:
        user: the user's name.
        vhost: the virtual host.
        exchange: name of the exchange.
        write: keys that may be published with, a regular expression.
        read: keys that may be bound by.
    """

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """Settings of all queues and exchanges whose names match a pattern.

    One policy and one operator policy apply to each: those with the highest priority, of equals the first by name.

    Attributes:
        vhost: the virtual host.
        name: unique among the policies, or among the operator policies, of the virtual host.
        pattern: a regular expression that is found anywhere in a name.
        definition: the settings, such as {"max-length": 1000}.
        priority: of the policies that match, the one with the highest applies.
        apply_to: all, exchanges, queues, classic_queues, quorum_queues or streams.
        is_operator: whether it is an operator policy: it limits what policies and arguments may ask for.
    """

    vhost: str
    name: str
    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = "all"
    is_operator: bool = False


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """What a component of the broker is given while it runs, as a shovel; RabbitMQ's runtime parameters.

    Attributes:
        vhost: the virtual host.
        component: what it is for: "shovel".
        name: unique among those of the component in the virtual host.
        value: as it was set; it may have passwords in it.
        generation: never given to another parameter of that name: a higher one means that it was set again, or that the
            component is to begin anew.
        progress: how far the component is, as it last told; nothing where it begins, or need not tell.
    """

    vhost: str
    component: str
    name: str
    value: dict[str, Any]
    generation: int = 1
    progress: dict[str, Any] = {}


class OpenTransaction(msgspec.Struct, frozen=True, array_like=True):
    """An undecided transaction: its messages will appear whole or not at all.

    Attributes:
        vhost: the virtual host of all its queues.
        name: unique among the undecided transactions of the virtual host.
        number: never given to another transaction.
        user: who began it. Only this user and administrators may publish to it, commit and abort it.
        timeout_ms: it is aborted when nobody has begun it for so long.
        touched_ms: when somebody last began it, in steady time.
        growing: topics that were getting partitions when it was new, and how many they had, by which it goes.
    """

    vhost: str
    name: str
    number: int
    user: str
    timeout_ms: int
    touched_ms: int
    growing: dict[str, int] = {}


PARTITIONS_MAX: Final = 10_000
"""Partitions of a topic: each is a queue, and all are declared by one command."""

PARTITION_EXCHANGE: Final = "x-partition"
"""The type of the exchanges of topics."""


def partition_name(topic: str, number: int) -> str:
    """The name of the queue that is a topic's partition."""
    return f"{topic}-{number}"


def partition_names(topic: str, partitions: int) -> list[str]:
    """The names of the queues of a topic with so many partitions, in order."""
    return [partition_name(topic, number) for number in range(partitions)]


REPLY_QUEUES: Final = "amq.rabbitmq.reply-to."
"""The beginning of the names of queues for direct replies. Clients publish to such a queue, and consume from their own;
they do nothing else with it."""

RESERVED_TRANSACTIONS: Final = "amq.tx."
"""The beginning of the names of transactions that gateways make for channels in AMQP's tx mode. Nobody commits one of
them a second time, so the coordinator forgets them soon after they are decided."""

SHOVEL_TRANSACTIONS: Final = f"{RESERVED_TRANSACTIONS}shovel."
"""The beginning of the names of transactions by which shovels move messages inside a broker: many a second, each named
after its messages. They are remembered for as long as those may still be reserved at the source."""

USER_TAGS: Final = ("administrator", "monitoring", "policymaker", "management", "impersonator")
"""Tags of users that have a meaning, as in RabbitMQ; others may be given, too."""

PREDECLARED: Final = (
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.topic", "topic"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
)
"""Exchanges that every virtual host has: name and type."""

EVENT_EXCHANGE: Final = "amq.rabbitmq.event"
"""The internal exchange of the default virtual host where the broker publishes what happens; RabbitMQ's name."""


TRACE_EXCHANGE: Final = "amq.rabbitmq.trace"
"""The internal exchange of each virtual host that gets copies of what is published and delivered there, while that is
traced; RabbitMQ's name."""


def predeclared(vhost: str) -> list[Exchange]:
    """The exchanges that a virtual host has from its beginning to its end."""
    exchanges = [Exchange(vhost, name, kind) for name, kind in PREDECLARED]
    exchanges.append(Exchange(vhost, TRACE_EXCHANGE, "topic", internal=True))
    if vhost == DEFAULT_VHOST:
        exchanges.append(Exchange(vhost, EVENT_EXCHANGE, "topic", internal=True))
    return exchanges


LOOPBACK_ONLY: Final = frozenset({"guest"})
"""Users with a password everybody knows; RabbitMQ's `loopback_users`."""

MANAGEMENT_TAGS: Final = frozenset({"management", "policymaker", "monitoring", "administrator"})
"""Tags of users who may manage: each may see more than the one before it, as in RabbitMQ."""

SEE_ALL_TAGS: Final = frozenset({"monitoring", "administrator"})
"""Tags of users who see all virtual hosts, and everybody's connections."""


def check_name(kind: str, name: str) -> None:
    """Make sure that a name is one.

    Args:
        kind: the word for the thing in the error, such as "queue".
        name: the name asked for.

    Raises:
        InvalidRequest: it is empty, over 255 bytes of UTF-8, or has a control character in it.
    """
    if not name:
        raise InvalidRequest(f"a {kind} needs a name; got an empty one")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise InvalidRequest(f"{kind} name '{name[:32]}…' is over {NAME_BYTES_MAX} bytes; choose a shorter one")
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        raise InvalidRequest(f"{kind} name {name!r} has a control character in it; choose another")


ARGUMENTS_DEPTH_MAX: Final = 16
"""How deep tables and lists in arguments may nest: every process reads them, and they are stored."""


def check_nesting(arguments: Any, depth: int = 0) -> None:
    """Make sure that every process can read these arguments.

    Raises:
        InvalidRequest: they nest too deep, or have a key that is no string.
    """
    if depth > ARGUMENTS_DEPTH_MAX:
        raise InvalidRequest(f"arguments nest deeper than {ARGUMENTS_DEPTH_MAX} levels; make them flatter")
    if isinstance(arguments, dict):
        for key, value in arguments.items():
            if not isinstance(key, str):
                raise InvalidRequest(f"arguments have the key {key!r}; keys are strings")
            check_nesting(value, depth + 1)
    elif isinstance(arguments, list | tuple):
        for value in arguments:
            check_nesting(value, depth + 1)


def check_name_free(kind: str, name: str) -> None:
    """Make sure that a name is one that clients may choose: names that begin with `amq.` are reserved, as in RabbitMQ.

    Args:
        kind: the word for the thing in the error, such as "queue".
        name: the name asked for.

    Raises:
        AccessRefused: the name is reserved.
        InvalidRequest: it is empty, over 255 bytes of UTF-8, or has a control character in it.
    """
    check_name(kind, name)
    if name.startswith("amq."):
        raise AccessRefused(f"{kind} name '{name}' contains reserved prefix 'amq.*'; choose another name")
