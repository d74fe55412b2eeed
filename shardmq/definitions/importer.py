"""Reading definitions, as an import plan: stages of commands, and what is skipped and why.

A plan is a pure function of the definitions and the topology. Definitions that make no sense are refused before
anything is created. What RabbitMQ has and this broker has not (mirrors, federation, …) is skipped with a sentence.
Topics, exchanges and queues that exist stay as they are, with a sentence where they are different. Virtual hosts,
users, permissions, limits, policies and parameters become those of the definitions; a user's password and tags that the
definitions do not have, or not so that they can be used, stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shardmq.definitions.export import VHOST_LIMITS, stored_hash
from shardmq.definitions.parameters import put_parameter
from shardmq.definitions.policies import OPERATOR_POLICY, operator_policy, put_policy, put_topic_permission
from shardmq.definitions.schema import (
    BindingItem,
    Definitions,
    ExchangeItem,
    ParameterItem,
    PermissionItem,
    QueueItem,
    TopicItem,
    UserItem,
    as_table,
    comparable,
    read_definitions,
    tags_of,
)
from shardmq.errors import InvalidRequest, RequestError
from shardmq.topology.arguments import SERVER_NAMED
from shardmq.topology.binding_ids import binding_id
from shardmq.topology.commands import (
    Bind,
    Command,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    PutLimits,
    PutPermission,
    PutUser,
    PutVhost,
)
from shardmq.topology.entities import (
    DEFAULT_EXCHANGE,
    PARTITION_EXCHANGE,
    PARTITIONS_MAX,
    Binding,
    partition_names,
    predeclared,
)
from shardmq.topology.exchanges import TYPES
from shardmq.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class ImportStep:
    """A command of a plan.

    Attributes:
        noun: what it is counted as, one of `NOUNS`.
        thing: what it creates, as in "queue 'q' in vhost '/'".
        command: for the coordinator.
    """

    noun: str
    thing: str
    command: Command


NOUNS: Final = (
    "vhosts",
    "users",
    "limits",
    "permissions",
    "topic_permissions",
    "policies",
    "topics",
    "exchanges",
    "queues",
    "bindings",
    "parameters",
)
"""What is imported, in this order."""

QUEUE_TYPES: Final = ("classic", "quorum", "stream")
"""Types of queues that are imported."""

IDLE_ARGUMENTS: Final = frozenset(
    {
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-initial-cluster-size",
        "x-quorum-initial-group-size",
        "x-quorum-target-group-size",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
    }
)
"""Arguments that place a queue in RabbitMQ's cluster or memory; a queue without them behaves the same here."""

METADATA: Final = frozenset(
    {
        "rabbit_version",
        "rabbitmq_version",
        "product_name",
        "product_version",
        "rabbitmq_definition_format",
        "original_vhost_name",
        "original_cluster_name",
        "explanation",
        "metadata",
    }
)
"""Parts of definitions that describe the definitions."""

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "vhost": ("max-connections", "max-queues"),
    "user": ("max-connections", "max-channels"),
}
"""Limits that are imported."""


class ImportPlan:
    """What an import does.

    Args:
        definitions: as they came.
        topology: as it is now; it is not changed.
        vhost: the virtual host of things that name none, as in an export of one virtual host.
        hashes: hashes of the passwords that the definitions have as such, by user (`plain_passwords`).

    Attributes:
        skipped: a sentence for everything that is left out.

    Raises:
        InvalidRequest: something in the definitions makes no sense.
    """

    def __init__(self, definitions: dict[str, Any], topology: Topology, vhost: str, hashes: Mapping[str, str]) -> None:
        self._topology = topology
        self._vhost = vhost
        self._hashes = hashes
        self._exchanges = set(topology.exchanges)
        self._queues = set(topology.queues)
        self.skipped: list[str] = []
        self._steps: dict[str, list[ImportStep]] = {noun: [] for noun in NOUNS}
        read = read_definitions(definitions)
        self._plan_vhosts(read)
        self._plan_users(read)
        for permission in read.permissions:
            self._plan_permission(permission)
        self._plan_policies(read)
        for topic in read.topics:
            self._plan_topic(topic)
        for exchange in read.exchanges:
            self._plan_exchange(exchange)
        for queue in read.queues:
            self._plan_queue(queue)
        for binding in read.bindings:
            self._plan_binding(binding)
        for parameter in read.parameters:
            self._plan_parameter(parameter)
        self._skip_foreign(definitions, read)

    @property
    def stages(self) -> list[list[ImportStep]]:
        """The commands, in the order of `NOUNS`."""
        return [self._steps[noun] for noun in NOUNS]

    def _add(self, noun: str, thing: str, command: Command) -> None:
        self._steps[noun].append(ImportStep(noun, thing, command))

    def _plan_vhosts(self, read: Definitions) -> None:
        limits = {vhost.name: as_table(vhost.limits) for vhost in read.vhosts}
        for vhost in read.vhosts:
            there = self._topology.vhosts.get(vhost.name)
            description = vhost.description or vhost.metadata.description or ""
            tags = tags_of(vhost.tags or vhost.metadata.tags or [])
            if there is None:
                self._exchanges.update((vhost.name, exchange.name) for exchange in predeclared(vhost.name))
            if there is None or (there.description, there.tags) != (description, tags):
                self._add("vhosts", f"vhost '{vhost.name}'", PutVhost(vhost.name, description, tags))
        for parameter in read.parameters:
            if (parameter.component, parameter.name) == VHOST_LIMITS:
                limits[parameter.vhost or self._vhost] = as_table(parameter.value)
        for name, wanted in limits.items():
            there = self._topology.vhosts.get(name)
            self._plan_limits("vhost", name, wanted, {} if there is None else there.limits)

    def _plan_users(self, read: Definitions) -> None:
        for user in read.users:
            there = self._topology.users.get(user.name)
            before = ("", ()) if there is None else (there.password, there.tags)
            password = self._password(user, before[0])
            tags = before[1] if user.tags is None else tags_of(user.tags)
            if there is None or before != (password, tags):
                self._add("users", f"user '{user.name}'", PutUser("", user.name, password, tags))
            self._plan_limits("user", user.name, as_table(user.limits), {} if there is None else there.limits)

    def _password(self, user: UserItem, before: str) -> str:
        """The stored hash that a user is to have: that of before, where the definitions have none that can be used."""
        if user.password_hash is None:
            return self._hashes.get(user.name, before)
        try:
            return stored_hash(user.password_hash, user.hashing_algorithm)
        except RequestError as error:
            kept = "; the user keeps its own" if before else ""
            self.skipped.append(f"the password of user '{user.name}': {error.text}{kept}")
            return before

    def _plan_limits(self, noun: str, name: str, wanted: dict[str, Any], there: Mapping[str, int]) -> None:
        limits: dict[str, int | None] = {}
        for limit, value in wanted.items():
            if limit not in LIMITS[noun]:
                self.skipped.append(f"limit '{limit}' of {noun} '{name}': there is no such limit here")
            elif type(value) is not int:
                raise InvalidRequest(f"definitions: limit '{limit}' of {noun} '{name}' is {value!r}; give a number")
            elif there.get(limit, -1) != max(value, -1):
                limits[limit] = None if value < 0 else value
        if limits:
            command = PutLimits(name, "", limits) if noun == "vhost" else PutLimits("", name, limits)
            self._add("limits", f"limits of {noun} '{name}'", command)

    def _plan_permission(self, item: PermissionItem) -> None:
        vhost = item.vhost or self._vhost
        there = self._topology.permissions.get((item.user, vhost))
        if there is None or (there.configure, there.write, there.read) != (item.configure, item.write, item.read):
            command = PutPermission(vhost, item.user, item.configure, item.write, item.read)
            self._add("permissions", f"permission of user '{item.user}' in vhost '{vhost}'", command)

    def _plan_policies(self, read: Definitions) -> None:
        topology, default = self._topology, self._vhost
        for item in read.topic_permissions:
            allowed = put_topic_permission(topology, item, default)
            if allowed is not None:
                thing = (
                    f"topic permission of user '{item.user}' on exchange '{item.exchange}' in vhost '{allowed.vhost}'"
                )
                self._add("topic_permissions", thing, allowed)
        parameters = [each for each in read.parameters if each.component == OPERATOR_POLICY]
        items = [(operator_policy(each), True) for each in parameters] + [(each, False) for each in read.policies]
        for each, is_operator in items:
            put = put_policy(topology, each, default, is_operator, self.skipped)
            if put is not None:
                self._add("policies", f"policy '{each.name}' in vhost '{put.vhost}'", put)

    def _plan_parameter(self, item: ParameterItem) -> None:
        if (item.component, item.name) == VHOST_LIMITS or item.component == OPERATOR_POLICY:
            return
        put = put_parameter(self._topology, item, self._vhost, self.skipped)
        if put is not None:
            self._add("parameters", f"{item.component} '{item.name}' in vhost '{put.vhost}'", put)

    def _plan_topic(self, item: TopicItem) -> None:
        vhost = item.vhost or self._vhost
        thing = f"topic '{item.name}' in vhost '{vhost}'"
        self._exchanges.add((vhost, item.name))
        self._queues.update(
            (vhost, queue) for queue in partition_names(item.name, min(item.partitions, PARTITIONS_MAX))
        )
        command = DeclareTopic(vhost, item.name, item.partitions, as_table(item.arguments))
        there = self._topology.topics.get((vhost, item.name))
        if there is None:
            self._add("topics", thing, command)
        elif (len(there.partitions), there.arguments) != (command.partitions, command.arguments):
            self.skipped.append(f"{thing}: it exists with other partitions or arguments, and stays as it is")

    def _plan_exchange(self, item: ExchangeItem) -> None:
        vhost = item.vhost or self._vhost
        thing = f"exchange '{item.name}' in vhost '{vhost}'"
        if item.name == DEFAULT_EXCHANGE or item.name in {each.name for each in predeclared(vhost)}:
            return  # every virtual host has it
        if item.name.startswith("amq."):
            self.skipped.append(f"{thing}: names that begin with 'amq.' are reserved for the broker")
            return
        if item.type not in TYPES or item.type == PARTITION_EXCHANGE:
            self.skipped.append(f"{thing}: there are no exchanges of type '{item.type}' here")
            return
        self._exchanges.add((vhost, item.name))
        command = DeclareExchange(
            vhost, item.name, item.type, item.durable, as_table(item.arguments), item.auto_delete, item.internal
        )
        there = self._topology.exchanges.get((vhost, item.name))
        if there is None:
            self._add("exchanges", thing, command)
        else:
            self._compare(thing, command, there, ("type", "durable", "auto_delete", "internal", "arguments"))

    def _plan_queue(self, item: QueueItem) -> None:
        vhost = item.vhost or self._vhost
        thing = f"queue '{item.name}' in vhost '{vhost}'"
        arguments = as_table(item.arguments)
        kind = arguments.get("x-queue-type", item.type or "classic")
        if kind not in QUEUE_TYPES:
            self.skipped.append(f"{thing}: there are no queues of type '{kind}' here")
            return
        self._queues.add((vhost, item.name))
        kept = {name: value for name, value in arguments.items() if not self._is_idle(thing, name, value)}
        command = DeclareQueue(
            vhost, item.name, item.durable, kept, item.auto_delete, server_named=item.name.startswith(SERVER_NAMED)
        )
        there = self._topology.queues.get((vhost, item.name))
        if there is None:
            self._add("queues", thing, command)
        else:
            self._compare(thing, command, there, ("durable", "auto_delete", "arguments"))

    def _is_idle(self, thing: str, name: str, value: Any) -> bool:
        if name in IDLE_ARGUMENTS:
            self.skipped.append(f"argument '{name}' of {thing}: it has no meaning here; the queue does without it")
            return True
        return name == "x-delivery-limit" and type(value) is int and value < 0  # no limit, as without it

    def _plan_binding(self, item: BindingItem) -> None:
        vhost = item.vhost or self._vhost
        if item.destination_type not in ("queue", "exchange"):
            raise InvalidRequest(
                f"definitions: a binding's destination_type is '{item.destination_type}'; give queue or exchange"
            )
        to_exchange = item.destination_type == "exchange"
        thing = (
            f"binding of {item.destination_type} '{item.destination}' to exchange '{item.source}' in vhost '{vhost}'"
        )
        missing = None
        if item.source == DEFAULT_EXCHANGE:
            missing = "every queue is bound to the default exchange"
        elif (vhost, item.source) not in self._exchanges:
            missing = f"there is no exchange '{item.source}'"
        elif (vhost, item.destination) not in (self._exchanges if to_exchange else self._queues):
            missing = f"there is no {item.destination_type} '{item.destination}'"
        if missing:
            self.skipped.append(f"{thing}: {missing}")
            return
        arguments = as_table(item.arguments)
        binding = Binding(vhost, item.source, item.destination, item.routing_key, arguments, to_exchange)
        if binding_id(binding) not in self._topology.bindings:
            command = Bind(vhost, item.source, item.destination, item.routing_key, arguments, to_exchange)
            self._add("bindings", thing, command)

    def _compare(self, thing: str, wanted: Any, there: Any, fields: Iterable[str]) -> None:
        different = [name for name in fields if comparable(getattr(wanted, name)) != comparable(getattr(there, name))]
        if different:
            self.skipped.append(f"{thing}: it exists with other {', '.join(different)}, and stays as it is")

    def _skip_foreign(self, definitions: dict[str, Any], read: Definitions) -> None:
        for parameter_of_all in read.global_parameters:
            self.skipped.append(f"global parameter '{parameter_of_all.get('name')}': there are none here")
        for name in definitions:
            if name not in Definitions.__struct_fields__ and name not in METADATA:
                self.skipped.append(f"'{name}': there is no such part of definitions here")


def plain_passwords(definitions: dict[str, Any]) -> dict[str, str]:
    """The passwords that definitions have as such and not as hashes, by user.

    Raises:
        InvalidRequest: the definitions do not have the shape of definitions.
    """
    users = read_definitions(definitions).users
    return {user.name: user.password for user in users if user.password and user.password_hash is None}
