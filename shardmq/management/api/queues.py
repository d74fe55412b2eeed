"""Queues, as RabbitMQ shows them."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from shardmq.management.api.clients import consumers_of_queue
from shardmq.management.web.body import flag, table, text
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.paged import message_stats, paged, sort_names, with_samples
from shardmq.message.json_values import plain
from shardmq.topology.entities import DEFAULT_VHOST

STATES: Final = {"running": "running", "away": "down", "out of service": "crashed"}
"""Our words for a queue's state, and RabbitMQ's."""

SORTS: Final = sort_names(
    {
        **{name: name for name in ("vhost", "durable", "auto_delete", "exclusive", "consumers", "messages")},
        **{f"{name}_details.rate": f"rates.{name}" for name in ("messages",)},
        "messages_ready": "ready",
        "messages_unacknowledged": "unacked",
        "messages_ready_details.rate": "rates.ready",
        "messages_unacknowledged_details.rate": "rates.unacked",
        "message_bytes": "bytes",
        "message_stats.deliver_get": "counts.deliver_get",
        "message_stats.deliver_get_details.rate": "rates.deliver_get",
    }
)
"""Columns that the broker sorts by, in RabbitMQ's words and ours."""


def queue_row(row: Row, node: str) -> Row:
    """A queue, in RabbitMQ's words; counts are left out where they are not known."""
    arguments = row["arguments"]
    shown: Row = {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": arguments.get("x-queue-type", "classic"),
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "exclusive": row["exclusive"],
        "arguments": plain(arguments),
        "node": node,
        "shard": row["shard"],
        "state": STATES.get(row.get("state", "running"), "running"),
        "policy": row.get("policy"),
        "operator_policy": row.get("operator_policy"),
        "effective_policy_definition": row.get("effective_policy_definition") or {},
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
    }
    if row["owner"]:
        shown["owner_pid_details"] = {"name": row["owner"]}
    return shown if row.get("messages") is None else {**shown, **_counts(row)}


def _counts(row: Row) -> Row:
    rates = row.get("rates") or {}
    shown = {
        "messages": row["messages"],
        "messages_ready": row["ready"],
        "messages_unacknowledged": row["unacked"],
        "messages_delayed": row["delayed"],
        "messages_details": {"rate": rates.get("messages", 0.0)},
        "messages_ready_details": {"rate": rates.get("ready", 0.0)},
        "messages_unacknowledged_details": {"rate": rates.get("unacked", 0.0)},
        "message_bytes": row["bytes"],
        "consumers": row["consumers"],
        "active_consumers": row["consumers"],
        "memory": 0,
    }
    if row.get("head_at") is not None:
        shown["head_message_timestamp"] = row["head_at"] // 1000
    if row.get("counts"):
        shown["message_stats"] = message_stats(row["counts"], rates)
    if row.get("idle_seconds") is not None:
        since = datetime.now(UTC) - timedelta(seconds=row["idle_seconds"])
        shown["idle_since"] = since.isoformat(timespec="milliseconds")
    return shown


async def _listed(call: Call, vhost: str | None) -> Answer:
    return Answer(await paged(call, "queues", vhost, lambda row: queue_row(row, call.facts.node), SORTS))


async def list_queues(call: Call) -> Answer:
    """All queues."""
    return await _listed(call, None)


async def list_queues_of_vhost(call: Call) -> Answer:
    """The queues of a virtual host."""
    return await _listed(call, await call.vhost())


async def list_queues_of_default_vhost(call: Call) -> Answer:
    """The queues of the default virtual host, where its name stands unquoted in the path, as Flower writes it."""
    await call.check_vhost(DEFAULT_VHOST)
    return await _listed(call, DEFAULT_VHOST)


async def get_queue(call: Call) -> Answer:
    """One queue, with its consumers."""
    vhost, name = call.part("vhost"), call.part("queue")
    await call.check_vhost(vhost)
    row = await (await call.caller.administration()).stats_get("queues", vhost, name)
    consumers = await consumers_of_queue(call, vhost, row)
    (shown,) = with_samples(call, "queues", [queue_row(row, call.facts.node)])
    oldest = [each["oldest_unacked_ms"] for each in consumers if each.get("oldest_unacked_ms") is not None]
    shown |= {"oldest_unacked_ms": max(oldest)} if oldest else {}
    return Answer({**shown, "consumer_details": consumers, "incoming": [], "deliveries": []})


async def put_queue(call: Call) -> Answer:
    """Declare a queue."""
    vhost, name, body = call.part("vhost"), call.part("queue"), await call.body()
    durable, auto_delete = flag(body, "durable", True), flag(body, "auto_delete")
    arguments = table(body, "arguments")
    channel = await call.channel(vhost)
    is_new = not await call.exists(channel.queue_declare(name, passive=True))
    await channel.queue_declare(name, durable, arguments, auto_delete=auto_delete)
    return put(is_new)


async def delete_queue(call: Call) -> Answer:
    """Delete a queue."""
    channel = await call.channel(call.part("vhost"))
    await channel.queue_delete(call.part("queue"), call.has_flag("if-unused"), call.has_flag("if-empty"))
    return NO_CONTENT


async def purge_queue(call: Call) -> Answer:
    """Delete the ready messages of a queue."""
    channel = await call.channel(call.part("vhost"))
    await channel.queue_purge(call.part("queue"))
    return NO_CONTENT


async def act_on_queue(call: Call) -> Answer:
    """Do as if mirrors were synchronised: there are none."""
    action = text(await call.body(), "action")
    if action not in ("sync", "cancel_sync"):
        raise ApiError.bad_request(f"unknown action '{action}'; there are sync and cancel_sync, which do nothing here")
    await call.row("queues", call.part("vhost"), call.part("queue"))
    return NO_CONTENT


def _list(path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint(
        "GET", path, handler, Right.MANAGEMENT, summary, list[Row], is_list=True, has_samples=True, is_shared=True
    )


class QueueBody(msgspec.Struct):
    """What a queue is to be."""

    durable: bool = True
    auto_delete: bool = False
    arguments: Row = {}


class ActionBody(msgspec.Struct):
    """What is to be done with a queue."""

    action: Literal["sync", "cancel_sync"]


QUEUE: Final = "/queues/{vhost}/{queue}"

ENDPOINTS: Final = (
    _list("/queues", list_queues, "Queues of all virtual hosts."),
    _list("/queues/detailed", list_queues, "Queues of all virtual hosts."),
    _list("/queues//", list_queues_of_default_vhost, "The queues of the default virtual host."),
    _list("/queues/{vhost}", list_queues_of_vhost, "The queues of a virtual host."),
    Endpoint(
        "GET",
        QUEUE,
        get_queue,
        Right.MANAGEMENT,
        "One queue, with its consumers.",
        Row,
        has_samples=True,
        is_shared=True,
    ),
    Endpoint("PUT", QUEUE, put_queue, Right.MANAGEMENT, "Declare a queue.", body=QueueBody),
    Endpoint("DELETE", QUEUE, delete_queue, Right.MANAGEMENT, "Delete a queue.", parameters=("if-unused", "if-empty")),
    Endpoint("DELETE", QUEUE + "/contents", purge_queue, Right.MANAGEMENT, "Purge a queue."),
    Endpoint("POST", QUEUE + "/actions", act_on_queue, Right.MANAGEMENT, "Nothing: no mirrors.", body=ActionBody),
)
"""What this file answers."""
