"""/metrics, /metrics/per-object, /metrics/detailed, /livez and /readyz."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

from shardmq.management.findings.evaluate import findings
from shardmq.management.metrics.aggregated import AGGREGATED, PER_OBJECT, write_aggregated
from shardmq.management.metrics.exposition import CONTENT_TYPE, Exposition
from shardmq.management.metrics.objects import CLUSTER, COUNTED, FAMILIES, write_counted, write_objects
from shardmq.management.metrics.processes import write_findings, write_processes
from shardmq.management.metrics.replicas import write_replicas
from shardmq.management.probes.readiness import why_not_ready
from shardmq.management.web.call import Call
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.streaming import PIECE_BYTES

RABBITMQ: Final = "rabbitmq_"
DETAILED: Final = "rabbitmq_detailed_"
OWN: Final = "shardmq_"

FINDINGS_AGE: Final = 5.0
"""A scrape takes what a look has found within so many seconds."""

USERS: Final = "user_metrics"
"""The family of COUNTED that RabbitMQ does not have."""


def _said(*parts: Exposition) -> Answer:
    return Answer(_pieces(parts), headers={"Content-Type": CONTENT_TYPE})


async def _pieces(parts: Iterable[Exposition]) -> AsyncIterator[bytes]:
    gathered = b""
    for part in parts:
        for piece in part.pieces():
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                yield gathered
                gathered = b""
    yield gathered


async def _aggregated(call: Call) -> Answer:
    return _said(*await _broker(call))


async def _broker(call: Call, endpoint: str = AGGREGATED) -> tuple[Exposition, Exposition]:
    connection = await call.caller.administration()
    overview = await call.overview()
    groups = [] if overview["away"] else await connection.topology("groups")  # that would ask each shard
    ours, theirs = Exposition(OWN), Exposition(RABBITMQ)
    write_aggregated(theirs, overview, call.facts.node, endpoint)
    write_processes(ours, overview, groups)
    write_replicas(ours, overview)
    write_findings(ours, await findings(connection, call.caller.looks, "", overview=call.overview, age=FINDINGS_AGE))
    return theirs, ours


async def _per_object(call: Call) -> Answer:
    connection = await call.caller.administration()
    theirs, ours = await _broker(call, PER_OBJECT)
    objects = Exposition(RABBITMQ)
    await write_objects(objects, connection, tuple(FAMILIES), [None])
    return _said(theirs, ours, objects)


async def _detailed(call: Call) -> Answer:
    families = call.query.getall("family", [])
    unknown = [name for name in families if name not in FAMILIES and name not in COUNTED]
    if unknown:
        known = ", ".join((*FAMILIES, *COUNTED))
        raise ApiError.bad_request(f"there is no family '{unknown[0]}'; ask for some of {known}")
    vhosts: list[Any] = call.query.getall("vhost", []) or [None]
    objects = Exposition(DETAILED)
    connection = await call.caller.administration()
    await write_objects(objects, connection, [name for name in families if name in FAMILIES], vhosts)
    exchanges = Exposition(CLUSTER)
    for name in dict.fromkeys(name for name in families if name in COUNTED):
        await write_counted(objects if name == USERS else exchanges, connection, name, vhosts)
    return _said(objects, exchanges)


async def _alive(_call: Call) -> Answer:
    return Answer({"status": "ok"})


async def _ready(call: Call) -> Answer:
    """Ready is a broker of which a gateway takes clients in, and reaches the coordinator and all shards."""
    reason = await why_not_ready(call.facts.url)
    return Answer({"status": "failed", "reason": reason}, 503) if reason else Answer({"status": "ok"})


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
    Endpoint("GET", "/readyz", _ready, Right.NOTHING, "Whether clients get in, with all shards there", prefix=""),
)
