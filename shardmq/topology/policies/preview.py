"""What a policy would change, before it is set or deleted; and which policies match a name. Pure functions."""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from shardmq.topology.entities import Exchange, Policy, Queue
from shardmq.topology.policies.keys import ALTERNATE
from shardmq.topology.policies.matching import Policies, matches
from shardmq.topology.topology import Topology

Row = dict[str, Any]
"""One row, by column."""


def preview(topology: Topology, policy: Policy, is_deleted: bool = False) -> list[Row]:
    """What setting or deleting a policy would change: a row for each queue and exchange that it matches or matched.

    Each row has "kind" (queue or exchange), "name", "policy" and "operator_policy" (the names of those that would
    apply), "policy_before" and "operator_policy_before", and "changes": [before, after] by argument, of those that
    would be others; null is none.

    Args:
        topology: as it is.
        policy: to be set, or deleted.
        is_deleted: whether it is to be deleted.
    """
    before = topology.policies
    there = before.get(policy.vhost, policy.name, policy.is_operator)
    after = Policies(each for each in before if each is not there)
    if not is_deleted:
        after.put(policy)
    rows = []
    for thing in _things(topology, policy.vhost):
        was, would = before.applied(thing), after.applied(thing)
        changes = _changes(_effect(before, thing), _effect(after, thing))
        is_matched = not is_deleted and matches(policy, thing)
        was_matched = there is not None and matches(there, thing)
        if changes or is_matched or was_matched:
            rows.append(
                {
                    "kind": "queue" if isinstance(thing, Queue) else "exchange",
                    "name": thing.name,
                    "policy_before": _name(was.policy),
                    "operator_policy_before": _name(was.operator),
                    "policy": _name(would.policy),
                    "operator_policy": _name(would.operator),
                    "changes": changes,
                }
            )
    return rows


def matching(topology: Topology, vhost: str, kind: str, name: str, type: str) -> list[Row]:
    """Which policies match a name: a row for each, first those that apply.

    Args:
        topology: as it is.
        vhost: the virtual host.
        kind: "queue" or "exchange".
        name: of something that may not exist.
        type: of the queue, where it does not exist.
    """
    thing: Queue | Exchange
    if kind == "exchange":
        thing = topology.exchanges.get((vhost, name)) or Exchange(vhost, name, "direct")
    else:
        thing = topology.queues.get((vhost, name)) or Queue(vhost, name, 0, 0, True, {"x-queue-type": type})
    applied = topology.policies.applied(thing)
    rows = [
        {**policy_row(each), "applies": each is applied.policy or each is applied.operator}
        for each in topology.policies.candidates(thing)
    ]
    return sorted(rows, key=lambda row: not row["applies"])


def policy_row(policy: Policy) -> Row:
    """The row of a policy or an operator policy."""
    return {
        "name": policy.name,
        "vhost": policy.vhost,
        "pattern": policy.pattern,
        "apply_to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
        "operator": policy.is_operator,
    }


def _things(topology: Topology, vhost: str) -> Iterator[Queue | Exchange]:
    yield from (exchange for exchange in topology.exchanges.values() if exchange.vhost == vhost)
    yield from (queue for queue in topology.queues.values() if queue.vhost == vhost)


def _effect(policies: Policies, thing: Queue | Exchange) -> Row:
    if isinstance(thing, Exchange):
        alternate = policies.alternate(thing)
        return {} if alternate is None else {ALTERNATE: alternate}
    return replace(thing, policy=policies.overlay(thing)).effective


def _changes(before: Row, after: Row) -> dict[str, list[Any]]:
    return {
        name: [before.get(name), after.get(name)] for name in {**before, **after} if before.get(name) != after.get(name)
    }


def _name(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name
