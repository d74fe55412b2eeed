"""Dead letters by reason and source: of one queue, and of all queues of a virtual host."""

from typing import Final

from shardmq.management.dead_letters.counting import Groups, count_all
from shardmq.management.dead_letters.walking import Walk
from shardmq.management.own.queues import queues_of
from shardmq.management.web.call import Call, Row
from shardmq.management.web.choosing import FILTERS, chosen_by_query
from shardmq.management.web.endpoint import Answer, Endpoint, Right


async def of_queue(call: Call) -> Answer:
    """The dead letters of a queue by reason and source, with the times of the oldest and the newest death."""
    vhost, queue = await call.vhost(), call.part("queue")
    filters, groups = chosen_by_query(call), Groups()
    channel = await call.channel(vhost)
    walk = Walk(channel, [], looked_at_max=float("inf"))
    async for page in walk.pages(queue, filters):
        groups.count(queue, page)
    return Answer({"groups": groups.rows(), "looked_at": walk.looked_at, "is_partial": walk.is_partial})


async def of_vhost(call: Call) -> Answer:
    """The dead letters of all queues of a virtual host by queue, reason and source."""
    vhost, filters = await call.vhost(), chosen_by_query(call)
    queues = [row for row in await queues_of(call, vhost) if row.get("ready") != 0]
    walk = Walk(await call.channel(vhost), queues)
    groups = await count_all(walk, filters)
    answer = {"groups": groups.rows(), "looked_at": walk.looked_at}
    return Answer({**answer, "is_partial": walk.is_partial, "missed": walk.missed})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/dead-letters/{vhost}",
        of_vhost,
        Right.MANAGEMENT,
        "Dead letters of all queues of a virtual host by queue, reason and source.",
        Row,
        parameters=FILTERS,
    ),
    Endpoint(
        "GET",
        "/shardmq/queues/{vhost}/{queue}/dead-letters",
        of_queue,
        Right.MANAGEMENT,
        "Dead letters of a queue by reason and source.",
        Row,
        parameters=FILTERS,
    ),
)
"""What this file answers."""
