"""/metrics, /metrics/per-object, /metrics/detailed, /livez and /readyz."""

import asyncio
from typing import Any, Final

from shardmq.client.api.url import parse
from shardmq.management.metrics.aggregated import AGGREGATED, PER_OBJECT, write_aggregated
from shardmq.management.metrics.exposition import CONTENT_TYPE, Exposition
from shardmq.management.metrics.objects import FAMILIES, write_objects
from shardmq.management.metrics.processes import write_processes
from shardmq.management.web.call import Call
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

RABBITMQ: Final = "rabbitmq_"
DETAILED: Final = "rabbitmq_detailed_"
OWN: Final = "shardmq_"

CONNECT_SECONDS: Final = 2.0


def _said(*parts: Exposition) -> Answer:
    text = "".join([part.text() for part in parts])
    return Answer(text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def _aggregated(call: Call) -> Answer:
    return _said(*await _broker(call))


async def _broker(call: Call, endpoint: str = AGGREGATED) -> tuple[Exposition, Exposition]:
    connection = await call.caller.administration()
    overview = await connection.stats_overview(is_detailed=True)
    groups = await connection.topology("groups")
    ours, theirs = Exposition(OWN), Exposition(RABBITMQ)
    write_aggregated(theirs, overview, call.facts.node, endpoint)
    write_processes(ours, overview, groups)
    return theirs, ours


async def _per_object(call: Call) -> Answer:
    connection = await call.caller.administration()
    theirs, ours = await _broker(call, PER_OBJECT)
    objects = Exposition(RABBITMQ)
    await write_objects(objects, connection, tuple(FAMILIES), [None])
    return _said(theirs, ours, objects)


async def _detailed(call: Call) -> Answer:
    families = call.query.getall("family", [])
    unknown = [name for name in families if name not in FAMILIES]
    if unknown:
        raise ApiError.bad_request(f"there is no family '{unknown[0]}'; ask for some of {', '.join(FAMILIES)}")
    vhosts: list[Any] = call.query.getall("vhost", []) or [None]
    objects = Exposition(DETAILED)
    await write_objects(objects, await call.caller.administration(), families, vhosts)
    return _said(objects)


async def _alive(_call: Call) -> Answer:
    return Answer({"status": "ok"})


async def _ready(call: Call) -> Answer:
    """Ready is a broker that takes clients in; whoever logs in hears of its shards, too."""
    address = parse(call.facts.url)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError) as fault:
        return Answer({"status": "failed", "reason": f"the broker takes no clients: {fault}"}, 503)
    writer.close()
    return Answer({"status": "ok"})


METRICS: Final = (
    Endpoint("GET", "/metrics", _aggregated, Right.MONITORING, "Metrics of the broker and its processes", prefix=""),
    Endpoint("GET", "/metrics/per-object", _per_object, Right.MONITORING, "These, and those of each object", prefix=""),
    Endpoint(
        "GET",
        "/metrics/detailed",
        _detailed,
        Right.MONITORING,
        "Chosen families of objects' metrics",
        parameters=("family", "vhost"),
        prefix="",
    ),
    Endpoint("GET", "/livez", _alive, Right.NOTHING, "Whether the management process does its work", prefix=""),
    Endpoint("GET", "/readyz", _ready, Right.NOTHING, "Whether the broker takes clients in", prefix=""),
)
