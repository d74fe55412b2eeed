"""Queues, as RabbitMQ shows them."""

from typing import Any, Final

from shardmq.management.api.clients import consumers_of
from shardmq.management.web.call import Call, Row
from shardmq.management.web.encoding import plain
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.listing import listed

NO_RATE: Final = {"rate": 0.0}


def queue_row(row: Row, node: str) -> Row:
    """A queue, in RabbitMQ's words; counts are left out while its shard is away."""
    arguments = row["arguments"]
    is_away = row["messages"] is None
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
        "state": "down" if is_away else "running",
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
        "exclusive_consumer_tag": None,
        "single_active_consumer_tag": None,
    }
    if row["owner"]:
        shown["owner_pid_details"] = {"name": row["owner"]}
    return shown if is_away else {**shown, **_counts(row)}


def _counts(row: Row) -> Row:
    return {
        "messages": row["messages"],
        "messages_ready": row["ready"],
        "messages_unacknowledged": row["unacked"],
        "messages_delayed": row["delayed"],
        "messages_details": NO_RATE,
        "messages_ready_details": NO_RATE,
        "messages_unacknowledged_details": NO_RATE,
        "message_bytes": row["bytes"],
        "consumers": row["consumers"],
        "active_consumers": row["consumers"],
        "memory": 0,
    }


async def list_queues(call: Call) -> Answer:
    """All queues."""
    return Answer(listed([queue_row(row, call.facts.node) for row in await call.rows("queues")], call.query))


async def list_queues_of_vhost(call: Call) -> Answer:
    """The queues of a virtual host."""
    rows = await call.rows("queues", await call.vhost())
    return Answer(listed([queue_row(row, call.facts.node) for row in rows], call.query))


async def get_queue(call: Call) -> Answer:
    """One queue, with its consumers."""
    vhost, name = call.part("vhost"), call.part("queue")
    row = await call.row("queues", vhost, name)
    consumers = [each for each in await consumers_of(call, vhost) if each["queue"]["name"] == name]
    return Answer({**queue_row(row, call.facts.node), "consumer_details": consumers, "incoming": [], "deliveries": []})


def _list(path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, Right.MANAGEMENT, summary, list[Row], is_list=True)


ENDPOINTS: Final = (
    _list("/queues", list_queues, "Queues of all virtual hosts."),
    _list("/queues/detailed", list_queues, "Queues of all virtual hosts."),
    _list("/queues/{vhost}", list_queues_of_vhost, "The queues of a virtual host."),
    Endpoint("GET", "/queues/{vhost}/{queue}", get_queue, Right.MANAGEMENT, "One queue, with its consumers.", Row),
)
"""What this file answers."""
