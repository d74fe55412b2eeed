"""Dead letters by reason and source: of one queue, and of all queues of a virtual host."""

from typing import Final

from shardmq.client.api.message import Message
from shardmq.management.own.deaths import AGES, Chosen, chosen_by_query, last_death, time_of
from shardmq.management.own.walking import Walk, portions, queues_of
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right


class _Groups:
    """Dead letters counted by queue, reason and source."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._rows: dict[tuple[str, str, str], Row] = {}

    def count(self, queue: str, messages: list[Message]) -> bool:
        """Count those that are meant; returns whether any of them died."""
        has_dead = False
        for message in messages:
            death = last_death(message)
            if death is None:
                continue
            has_dead = True
            if self._chosen.has(message):
                self._add(queue, death)
        return has_dead

    def _add(self, queue: str, death: Row) -> None:
        reason, source = str(death.get("reason", "")), death["queue"]
        row = self._rows.setdefault(
            (queue, reason, source),
            {"queue": queue, "reason": reason, "source": source, "messages": 0, "oldest": None, "newest": None},
        )
        row["messages"] += 1
        when = time_of(death)
        if when is not None:
            row["oldest"] = when if row["oldest"] is None else min(row["oldest"], when)
            row["newest"] = when if row["newest"] is None else max(row["newest"], when)

    def rows(self) -> list[Row]:
        """A row for each group, in order."""
        return [self._rows[key] for key in sorted(self._rows)]


async def of_queue(call: Call) -> Answer:
    """The dead letters of a queue by reason and source, with the times of the oldest and the newest death."""
    vhost, queue = await call.vhost(), call.part("queue")
    groups = _Groups(chosen_by_query(call))
    channel = await call.channel(vhost)
    looked_at = 0
    async for messages in portions(channel, queue):
        looked_at += len(messages)
        groups.count(queue, messages)
    return Answer({"groups": groups.rows(), "looked_at": looked_at})


async def of_vhost(call: Call) -> Answer:
    """The dead letters of all queues of a virtual host by queue, reason and source.

    A queue whose first portion holds none is taken for one that dead letters do not go to.
    """
    vhost = await call.vhost()
    groups = _Groups(chosen_by_query(call))
    queues = [row for row in await queues_of(call, vhost) if row.get("ready") != 0]
    walk = Walk(await call.channel(vhost), queues)
    async for queue, messages in walk.portions():
        if not groups.count(queue, messages):
            walk.leave()
    answer = {"groups": groups.rows(), "looked_at": walk.looked_at}
    return Answer({**answer, "is_partial": walk.is_partial, "missed": walk.missed})


FILTERS: Final = ("reason", "source", *AGES)

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
