"""Events of the topology and of alarms, by RabbitMQ's names. One gateway, which the coordinator names, tells them.

change of the topology          event
QueueAdded, QueueRemoved        queue.created, queue.deleted; so exchanges, bindings, topics
VhostPut                        vhost.created, or vhost.limits.set, vhost.limits.cleared
UserPut                         user.created, or user.password.changed, user.tags.set, user.limits.set …
PermissionPut                   permission.created, as in RabbitMQ also where it was there with other expressions
PolicyPut, PolicyRemoved        policy.set, policy.cleared; operator_policy.set …
ParameterPut, ParameterRemoved  parameter.set, parameter.cleared; without the value, which may have passwords
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final

from msgspec import structs

from shardmq.bus.messages.coordinator import Changes
from shardmq.gateway.events.exchange import EventExchange
from shardmq.topology import changes as kinds
from shardmq.topology.changes import Change
from shardmq.topology.entities import Binding, Exchange, Policy, Queue, Topic, User, Vhost
from shardmq.topology.topology import Topology

Event = tuple[str, Mapping[str, Any]]
"""Its name, and its facts."""


class TopologyEvents:
    """Follows the topology, and tells what changes.

    Args:
        topology: the replica.
        exchange: where it is told.
        is_teller: whether this gateway is the one that tells.
    """

    def __init__(self, topology: Topology, exchange: EventExchange, is_teller: Callable[[], bool]) -> None:
        self._topology = topology
        self._exchange = exchange
        self._is_teller = is_teller
        self._users: dict[str, User] = {}
        self._vhosts: dict[str, Vhost] = {}

    def loaded(self) -> None:
        """Take the whole topology as what is known: what has changed meanwhile is not told."""
        self._users = dict(self._topology.users)
        self._vhosts = dict(self._topology.vhosts)

    def changed(self, news: Changes) -> None:
        """Tell what has changed, if it is for this gateway to tell and somebody listens."""
        if self._is_teller() and self._exchange.is_heard:
            for change, user in zip(news.changes, _performers(news), strict=False):
                for event, facts in self._events(change):
                    self._exchange.tell(event, {"user_who_performed_action": user or INTERNAL_USER, **facts})
        else:
            for change in news.changes:
                if isinstance(change, NOTED):
                    self._note(change)

    def alarm(self, process: str, resource: str, is_on: bool, text: str) -> None:
        """Tell of an alarm of a shard or a gateway."""
        event = "alarm.set" if is_on else "alarm.cleared"
        self._exchange.tell(event, {"name": resource, "node": process, "description": text})

    def _note(self, change: Change) -> tuple[User | Vhost | None, User | Vhost | None]:
        """Keep what is known of users and virtual hosts. Returns what was before, and what is."""
        match change:
            case kinds.UserPut(user):
                before, self._users[user.name] = self._users.get(user.name), user
                return before, user
            case kinds.VhostPut(vhost):
                there, self._vhosts[vhost.name] = self._vhosts.get(vhost.name), vhost
                return there, vhost
            case kinds.UserRemoved(name):
                return self._users.pop(name, None), None
            case kinds.VhostRemoved(name):
                return self._vhosts.pop(name, None), None
        return None, None

    def _events(self, change: Change) -> Iterator[Event]:
        before, after = self._note(change)
        if isinstance(after, User):
            yield from _user_put(before if isinstance(before, User) else None, after)
        elif isinstance(after, Vhost):
            yield from _vhost_put(before if isinstance(before, Vhost) else None, after)
        elif (make := EVENTS.get(type(change))) is not None:
            yield make(change)


NOTED: Final = (kinds.UserPut, kinds.UserRemoved, kinds.VhostPut, kinds.VhostRemoved)
"""Changes of what has to be known from before to tell what is new in it."""


INTERNAL_USER: Final = "rmq-internal"
"""Who does what the broker does by itself, as in RabbitMQ: it drops queues that are exclusive, unused or expired."""


def _performers(news: Changes) -> Iterator[str]:
    """The user of each change, and "" for ever."""
    known = chain.from_iterable(repeat(user, count) for count, user in news.performers)
    return chain(known, repeat(""))


def _user_put(before: User | None, user: User) -> Iterator[Event]:
    name = {"name": user.name}
    if before is None:
        yield "user.created", name
    elif before.password != user.password:
        yield ("user.password.changed" if user.password else "user.password.cleared"), name
    if user.tags != (() if before is None else before.tags):
        yield "user.tags.set", {**name, "tags": list(user.tags)}
    if user.limits != ({} if before is None else before.limits):
        yield ("user.limits.set" if user.limits else "user.limits.cleared"), {**name, "limits": dict(user.limits)}


def _vhost_put(before: Vhost | None, vhost: Vhost) -> Iterator[Event]:
    name = {"name": vhost.name}
    if before is None:
        yield "vhost.created", {**name, "tags": list(vhost.tags), "description": vhost.description}
    if vhost.limits != ({} if before is None else before.limits):
        yield ("vhost.limits.set" if vhost.limits else "vhost.limits.cleared"), {**name, "limits": dict(vhost.limits)}


def _queue(queue: Queue) -> Mapping[str, Any]:
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": bool(queue.owner),
        "owner_pid": queue.owner,
        "arguments": queue.arguments,
    }


def _exchange(exchange: Exchange) -> Mapping[str, Any]:
    return {
        "vhost": exchange.vhost,
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def _binding(binding: Binding) -> Mapping[str, Any]:
    return {
        "vhost": binding.vhost,
        "source_name": binding.exchange,
        "source_kind": "exchange",
        "destination_name": binding.destination,
        "destination_kind": "exchange" if binding.to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }


def _policy_set(change: kinds.PolicyPut) -> Event:
    policy: Policy = change.policy
    facts = {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
        "definition": policy.definition,
    }
    return f"{_policy_word(policy.is_operator)}.set", facts


def _policy_word(is_operator: bool) -> str:
    return "operator_policy" if is_operator else "policy"


def _topic(topic: Topic) -> Event:
    facts = {
        "vhost": topic.vhost,
        "name": topic.name,
        "partitions": len(topic.partitions),
        "arguments": topic.arguments,
    }
    return ("topic.created" if topic.epoch == 1 else "topic.extended"), facts


def _parameter(of: Any) -> Mapping[str, Any]:
    return {"vhost": of.vhost, "component": of.component, "name": of.name}


def _named(change: Any) -> Mapping[str, Any]:
    return {"vhost": change.vhost, "name": change.name}


EVENTS: Final[Mapping[type, Callable[[Any], Event]]] = {
    kinds.QueueAdded: lambda change: ("queue.created", _queue(change.queue)),
    kinds.QueueRemoved: lambda change: ("queue.deleted", _named(change)),
    kinds.ExchangeAdded: lambda change: ("exchange.created", _exchange(change.exchange)),
    kinds.ExchangeRemoved: lambda change: ("exchange.deleted", _named(change)),
    kinds.BindingAdded: lambda change: ("binding.created", _binding(change.binding)),
    kinds.BindingRemoved: lambda change: ("binding.deleted", _binding(change.binding)),
    kinds.TopicPut: lambda change: _topic(change.topic),
    kinds.TopicRemoved: lambda change: ("topic.deleted", _named(change)),
    kinds.UserRemoved: lambda change: ("user.deleted", {"name": change.name}),
    kinds.VhostRemoved: lambda change: ("vhost.deleted", {"name": change.name}),
    kinds.PermissionPut: lambda change: ("permission.created", structs.asdict(change.permission)),
    kinds.PermissionRemoved: lambda change: ("permission.deleted", {"vhost": change.vhost, "user": change.user}),
    kinds.TopicPermissionPut: lambda change: ("topic.permission.created", structs.asdict(change.permission)),
    kinds.TopicPermissionRemoved: lambda change: (
        "topic.permission.deleted",
        {"vhost": change.vhost, "user": change.user, "exchange": change.exchange},
    ),
    kinds.ParameterPut: lambda change: ("parameter.set", _parameter(change.parameter)),
    kinds.ParameterRemoved: lambda change: ("parameter.cleared", _parameter(change)),
    kinds.PolicyPut: _policy_set,
    kinds.PolicyRemoved: lambda change: (f"{_policy_word(change.is_operator)}.cleared", _named(change)),
}
"""What is told of which change."""
