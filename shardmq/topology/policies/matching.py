"""Which policies apply to a queue or an exchange, and what follows from them. Where there are none, that costs nothing.

A policy applies to what is of its kind and has a name in which its pattern is found; to a queue only where all of its
settings mean something there. Of those that match, the one with the highest priority applies, of equals the first by
name, and beside it one operator policy, found in the same way.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import DEFAULT_EXCHANGE, REPLY_QUEUES, Exchange, Policy, Queue
from shardmq.topology.expressions import compiled
from shardmq.topology.policies.keys import ALTERNATE, applies_to_type, merged, overlay

PolicyId = tuple[str, str, bool]
"""Virtual host, name, whether it is an operator policy."""

FOUND_MAX: Final = 65_536
"""Names whose policies are remembered; past it they are looked for again."""


class Applied(NamedTuple):
    """What applies to a queue or an exchange.

    Attributes:
        policy: None where none does.
        operator: the operator policy; None where none does.
        definition: of both, merged.
    """

    policy: Policy | None
    operator: Policy | None
    definition: dict[str, Any]


NOTHING: Final = Applied(None, None, {})
"""Where no policy applies."""


def matches(policy: Policy, thing: Queue | Exchange) -> bool:
    """Whether a policy of the same virtual host matches a queue or an exchange; another one may come before it."""
    if isinstance(thing, Exchange):
        return thing.name != DEFAULT_EXCHANGE and policy.apply_to in ("all", "exchanges") and _is_in(policy, thing)
    if thing.name.startswith(REPLY_QUEUES):
        return False
    kind = thing.arguments.get("x-queue-type", "classic")
    of_kind = "streams" if kind == "stream" else f"{kind}_queues"
    return (
        policy.apply_to in ("all", "queues", of_kind)
        and _is_in(policy, thing)
        and applies_to_type(policy.definition, kind)
    )


def _is_in(policy: Policy, thing: Queue | Exchange) -> bool:
    return compiled(policy.pattern).is_in(thing.name)


def _precedence(policy: Policy) -> tuple[int, str]:
    return -policy.priority, policy.name


class Policies:
    """All policies and operator policies of a topology.

    Attributes:
        to_default: virtual hosts where one makes the default exchange an alternate exchange.
    """

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        self._policies: dict[PolicyId, Policy] = {}
        self._of_vhosts: dict[tuple[str, bool], list[Policy]] = {}  # in the order in which they are tried
        self._found: dict[tuple[str, str, bool, str], Applied] = {}
        self.to_default: set[str] = set()
        for policy in policies:
            self.put(policy)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies.values())

    def __len__(self) -> int:
        return len(self._policies)

    def get(self, vhost: str, name: str, is_operator: bool) -> Policy | None:
        """A policy by its name."""
        return self._policies.get((vhost, name, is_operator))

    def count(self, vhost: str) -> int:
        """The number of policies and operator policies of a virtual host."""
        return len(self._of_vhosts.get((vhost, False), ())) + len(self._of_vhosts.get((vhost, True), ()))

    def put(self, policy: Policy) -> None:
        """Take in a policy, in place of the one of that name."""
        self._policies[policy.vhost, policy.name, policy.is_operator] = policy
        self._arrange(policy.vhost, policy.is_operator)

    def remove(self, vhost: str, name: str, is_operator: bool) -> None:
        """Remove a policy.

        Raises:
            KeyError: there is none.
        """
        del self._policies[vhost, name, is_operator]
        self._arrange(vhost, is_operator)

    def applied(self, thing: Queue | Exchange) -> Applied:
        """What applies to a queue or an exchange."""
        vhost = thing.vhost
        users, operators = self._of_vhosts.get((vhost, False)), self._of_vhosts.get((vhost, True))
        if users is None and operators is None:
            return NOTHING
        is_queue = isinstance(thing, Queue)
        kind = thing.arguments.get("x-queue-type", "classic") if is_queue else ""
        place = vhost, thing.name, is_queue, kind
        found = self._found.get(place)
        if found is None:
            policy, operator = _first(users, thing), _first(operators, thing)
            found = NOTHING
            if policy is not None or operator is not None:
                definition = None if policy is None else policy.definition
                limits = None if operator is None else operator.definition
                found = Applied(policy, operator, merged(definition, limits))
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[place] = found
        return found

    def overlay(self, queue: Queue) -> dict[str, Any]:
        """The arguments that policies give a queue: those that differ from its own."""
        definition = self.applied(queue).definition
        return overlay(queue.arguments, definition, is_stream(queue.arguments)) if definition else {}

    def given(self, queue: Queue) -> Queue:
        """A queue with what policies give it, as its shard is to know it: itself where that is what it has already."""
        changed = self.overlay(queue) if self._policies else {}
        return queue if changed == queue.policy else replace(queue, policy=changed)

    def arguments(self, queue: Queue) -> dict[str, Any]:
        """The arguments of a queue that count."""
        if not self._policies:
            return queue.arguments
        changed = self.overlay(queue)
        return {**queue.arguments, **changed} if changed else queue.arguments

    def alternate(self, exchange: Exchange) -> str | None:
        """The alternate exchange of an exchange; its own argument comes before policies."""
        alternate: str | None = exchange.arguments.get(ALTERNATE)
        if alternate is None and self._policies:
            alternate = self.applied(exchange).definition.get(ALTERNATE)
        return alternate

    def candidates(self, thing: Queue | Exchange) -> list[Policy]:
        """All that match, policies first; of both, the one that applies is the first."""
        vhost = thing.vhost
        return [
            policy
            for is_operator in (False, True)
            for policy in self._of_vhosts.get((vhost, is_operator), ())
            if matches(policy, thing)
        ]

    def _arrange(self, vhost: str, is_operator: bool) -> None:
        there = [each for each in self._policies.values() if (each.vhost, each.is_operator) == (vhost, is_operator)]
        if there:
            self._of_vhosts[vhost, is_operator] = sorted(there, key=_precedence)
        else:
            self._of_vhosts.pop((vhost, is_operator), None)
        self.to_default = {each.vhost for each in self if each.definition.get(ALTERNATE) == DEFAULT_EXCHANGE}
        self._found.clear()


def _first(policies: Iterable[Policy] | None, thing: Queue | Exchange) -> Policy | None:
    return next((policy for policy in policies or () if matches(policy, thing)), None)
