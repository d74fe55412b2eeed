"""Virtual hosts, as RabbitMQ shows them."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.listing import listed


def vhost_row(row: Row, node: str, counts: Row) -> Row:
    """A virtual host, in RabbitMQ's words."""
    return {
        "name": row["name"],
        "description": row["description"],
        "tags": row["tags"],
        "default_queue_type": "classic",
        "metadata": {"description": row["description"], "tags": row["tags"], "default_queue_type": "classic"},
        "tracing": False,
        "protected_from_deletion": False,
        "cluster_state": {node: "running"},
        **counts,
    }


async def counts_of(call: Call) -> dict[str, Row]:
    """The messages in each virtual host."""
    counts: dict[str, Row] = {}
    for row in await call.rows("queues"):
        counted = counts.setdefault(row["vhost"], {"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0})
        counted["messages"] += row["messages"] or 0
        counted["messages_ready"] += row["ready"] or 0
        counted["messages_unacknowledged"] += row["unacked"] or 0
    return counts


async def list_vhosts(call: Call) -> Answer:
    """All virtual hosts."""
    counts = await counts_of(call)
    rows = [vhost_row(row, call.facts.node, counts.get(row["name"], {})) for row in await call.rows("vhosts")]
    return Answer(listed(rows, call.query))


async def get_vhost(call: Call) -> Answer:
    """One virtual host."""
    name = await call.vhost()
    row = next(row for row in await call.rows("vhosts") if row["name"] == name)
    return Answer(vhost_row(row, call.facts.node, (await counts_of(call)).get(name, {})))


ENDPOINTS: Final = (
    Endpoint(
        "GET", "/vhosts", list_vhosts, Right.MANAGEMENT, "Virtual hosts the caller may see.", list[Row], is_list=True
    ),
    Endpoint("GET", "/vhosts/{vhost}", get_vhost, Right.MANAGEMENT, "One virtual host.", Row),
)
"""What this file answers."""
