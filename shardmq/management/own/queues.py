"""The queues that may hold what somebody looks for; and what was counted of some queues, for small charts in lists."""

from typing import Final

from shardmq.client.api.statistics import ListQuery
from shardmq.management.samples.details import COLUMNS
from shardmq.management.samples.spans import Span, now
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.paged import asked_spans

NAMES_MAX: Final = 100
"""Queues of one answer: a page of the list."""

SPAN: Final = Span(300, 10)
"""Where a request asks for no other."""

SHOWN: Final = ("messages", "publish", "deliver_get", "ack")
"""Numbers of queues, in RabbitMQ's words; all but the first grow for ever."""

PLACES: Final = [[column.name for column in COLUMNS["queues"]].index(name) for name in SHOWN]


async def all_queues_of(call: Call, vhost: str) -> list[Row]:
    """The queues of a virtual host with their counters; partitions of topics are among them."""
    connection = await call.caller.administration()
    table = await connection.stats_list("queues", ListQuery(vhost))
    items: list[Row] = table["items"]
    return items


def is_stream(row: Row) -> bool:
    """Whether a queue is a stream or a partition, which keep what was consumed."""
    return bool(row["arguments"].get("x-queue-type") == "stream")


async def queues_of(call: Call, vhost: str) -> list[Row]:
    """The queues of a virtual host with their counters, but for streams."""
    return [row for row in await all_queues_of(call, vhost) if not is_stream(row)]


async def samples(call: Call) -> Answer:
    """What was counted of some queues, oldest first; null where nobody looked. Nobody else is asked for it."""
    vhost, names = await call.vhost(), call.query.getall("name", [])
    if len(names) > NAMES_MAX:
        raise ApiError.bad_request(f"{len(names)} names are given; give {NAMES_MAX} at most, as name=one&name=other")
    span, at, kept = asked_spans(call).get("lengths", SPAN), now(), call.facts.samples.kept
    rows = [
        {"name": name, **dict(zip(SHOWN, kept("queues", vhost, name, PLACES, span, at), strict=True))} for name in names
    ]
    return Answer({"step": span.step, "newest": 1000 * span.moments(at)[0], "queues": rows})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/samples/queues/{vhost}",
        samples,
        Right.MANAGEMENT,
        "What was counted of some queues, for small charts.",
        Row,
        parameters=("name", "lengths_age", "lengths_incr"),
        is_shared=True,
    ),
)
"""What this file answers."""
