"""What exists, as rows of lists and definitions."""

from typing import Any, Final

from shardmq.topology.entities import Binding, Exchange, OpenTransaction, Permission, Queue, Topic, Vhost
from shardmq.topology.policies.matching import Applied

Row = dict[str, Any]
"""One row, by column."""

COUNTS: Final = ("ready", "unacked", "delayed", "bytes")
"""Columns of queues that their shard counts; None while the shard is away."""

STAGED: Final = ("attempts", "messages", "bytes")
"""Columns of transactions that all shards count together; None while one of them is away."""


def exchange_row(exchange: Exchange) -> Row:
    """The row of an exchange."""
    return {
        "name": exchange.name,
        "vhost": exchange.vhost,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
    }


def queue_row(queue: Queue, counts: Row | None) -> Row:
    """The row of a queue.

    Args:
        queue: as declared.
        counts: what its shard counts; None while the shard is away.
    """
    counted = counts or {}
    ready, unacked = counted.get("ready"), counted.get("unacked")
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "shard": queue.shard,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": bool(queue.owner),
        "owner": queue.owner,
        "arguments": queue.arguments,
        "messages": None if ready is None or unacked is None else ready + unacked,
        **{name: counted.get(name) for name in COUNTS},
        "consumers": counted.get("consumers"),
    }


def policy_columns(applied: Applied) -> Row:
    """The columns of a queue or an exchange that say which policies apply to it, and what they say together."""
    return {
        "policy": None if applied.policy is None else applied.policy.name,
        "operator_policy": None if applied.operator is None else applied.operator.name,
        "effective_policy_definition": applied.definition,
    }


def topic_row(topic: Topic) -> Row:
    """The row of a topic."""
    return {
        "name": topic.name,
        "vhost": topic.vhost,
        "partitions": len(topic.partitions),
        "epoch": topic.epoch,
        "arguments": topic.arguments,
    }


def binding_row(binding: Binding) -> Row:
    """The row of a binding."""
    return {
        "source": binding.exchange,
        "vhost": binding.vhost,
        "destination": binding.destination,
        "destination_type": "exchange" if binding.to_exchange else "queue",
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }


def vhost_row(vhost: Vhost, traced: float) -> Row:
    """The row of a virtual host, of whose messages such a part is traced."""
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "limits": vhost.limits,
        "tracing": traced > 0,
        "trace_sample": traced,
    }


def permission_row(permission: Permission) -> Row:
    """The row of a permission."""
    return {
        "user": permission.user,
        "vhost": permission.vhost,
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def transaction_row(transaction: OpenTransaction, now_ms: int, staged: Row | None) -> Row:
    """The row of an undecided transaction.

    Args:
        transaction: as it was begun last.
        now_ms: steady time, in milliseconds.
        staged: what all shards count of it, summed; None while one of them is away.
    """
    return {
        "name": transaction.name,
        "number": transaction.number,
        "vhost": transaction.vhost,
        "user": transaction.user,
        "timeout_ms": transaction.timeout_ms,
        "idle_ms": max(0, now_ms - transaction.touched_ms),
        **{name: None if staged is None else staged.get(name, 0) for name in STAGED},
    }
