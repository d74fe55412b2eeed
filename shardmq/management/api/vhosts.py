"""Virtual hosts, as RabbitMQ shows them."""

from typing import Final

import msgspec

from shardmq.management.web.body import flag, text, words
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.management.web.paged import message_stats, with_samples

NO_VHOST: Final[Row] = {"description": "", "tags": [], "trace_sample": 0.0}
"""What is kept of a virtual host that is not there yet: nothing."""


def vhost_row(row: Row, node: str, counts: Row) -> Row:
    """A virtual host, in RabbitMQ's words."""
    return {
        "name": row["name"],
        "description": row["description"],
        "tags": row["tags"],
        "default_queue_type": "classic",
        "metadata": {"description": row["description"], "tags": row["tags"], "default_queue_type": "classic"},
        "tracing": row["tracing"],
        "trace_sample": row["trace_sample"],
        "protected_from_deletion": False,
        "cluster_state": {node: "running"},
        **counts,
    }


async def counts_of(call: Call) -> dict[str, Row]:
    """The messages in each virtual host."""
    return vhost_counts(await (await call.caller.administration()).stats_overview())


def vhost_counts(found: Row) -> dict[str, Row]:
    """The messages in each virtual host, from the broker's overview."""
    return {
        name: {
            "messages": counted["messages"],
            "messages_ready": counted["ready"],
            "messages_unacknowledged": counted["unacked"],
            "messages_details": {"rate": counted["rates"]["messages"]},
            "messages_ready_details": {"rate": counted["rates"]["ready"]},
            "messages_unacknowledged_details": {"rate": counted["rates"]["unacked"]},
            "message_stats": message_stats(counted["flow"]["counts"], counted["flow"]["rates"]),
        }
        for name, counted in found["vhosts"].items()
    }


async def list_vhosts(call: Call) -> Answer:
    """All virtual hosts."""
    counts = await counts_of(call)
    rows = [vhost_row(row, call.facts.node, counts.get(row["name"], {})) for row in await call.rows("vhosts")]
    return Answer(listed(with_samples(call, "vhosts", rows), call.query))


async def get_vhost(call: Call) -> Answer:
    """One virtual host."""
    name = await call.vhost()
    row = next(row for row in await call.rows("vhosts") if row["name"] == name)
    shown = vhost_row(row, call.facts.node, (await counts_of(call)).get(name, {}))
    return Answer(with_samples(call, "vhosts", [shown])[0])


async def put_vhost(call: Call) -> Answer:
    """Create a virtual host, or change what is said of it."""
    name, body = call.part("vhost"), await call.body()
    kind = text(body, "default_queue_type", "classic")
    if kind not in ("classic", "undefined", ""):
        raise ApiError.bad_request(f"default_queue_type is '{kind}'; queues have the type they are declared with")
    there = next((row for row in await call.rows("vhosts") if row["name"] == name), NO_VHOST)
    sample = traced_part(body, there["trace_sample"])
    connection = await call.caller.administration()
    tags = words(body, "tags") if "tags" in body else there["tags"]
    await connection.vhost_put(name, text(body, "description", there["description"]), tags)
    is_new = there is NO_VHOST
    if is_new:  # RabbitMQ's management gives whoever makes one all permissions there
        await connection.permission_put(call.user, name, ".*", ".*", ".*")
    if sample != there["trace_sample"]:
        await connection.tracing_put(name, sample)
    return put(is_new)


def traced_part(body: Row, present: float) -> float:
    """Which part of the messages is to be traced: `tracing` is RabbitMQ's field, `trace_sample` shardmq's.

    Raises:
        ApiError: they make no sense.
    """
    wanted = body.get("trace_sample")
    sample = (present or 1.0) if wanted is None else wanted
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise ApiError.bad_request(f"trace_sample is {sample!r:.40}; give a number from 0 to 1")
    is_on = flag(body, "tracing", present > 0 if wanted is None else wanted > 0)
    return float(sample) if is_on else 0.0


async def delete_vhost(call: Call) -> Answer:
    """Delete a virtual host with everything in it."""
    name = await call.vhost()
    await (await call.caller.administration()).vhost_delete(name)
    return NO_CONTENT


async def start_vhost(call: Call) -> Answer:
    """Do as if a virtual host were started: all are."""
    await call.vhost()
    return NO_CONTENT


class VhostBody(msgspec.Struct):
    """What is said of a virtual host."""

    description: str = ""
    tags: list[str] | str = []
    tracing: bool = False
    trace_sample: float = 1.0


VHOST: Final = "/vhosts/{vhost}"

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/vhosts",
        list_vhosts,
        Right.MANAGEMENT,
        "Virtual hosts the caller may see.",
        list[Row],
        is_list=True,
        has_samples=True,
    ),
    Endpoint("GET", VHOST, get_vhost, Right.MANAGEMENT, "One virtual host.", Row, has_samples=True),
    Endpoint("PUT", VHOST, put_vhost, Right.ADMINISTRATOR, "Create or change a virtual host.", body=VhostBody),
    Endpoint("DELETE", VHOST, delete_vhost, Right.ADMINISTRATOR, "Delete a virtual host with all in it."),
    Endpoint("POST", VHOST + "/start/{node}", start_vhost, Right.ADMINISTRATOR, "Nothing: all are running."),
)
"""What this file answers."""
