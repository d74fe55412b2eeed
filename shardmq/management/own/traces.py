"""Where a message went: the queues, streams and topics that hold it, its deaths there, and its route.

Messages are known by their id: the publisher's, or else the broker's, which is the same in every queue. The broker
searches what is ready, and what streams keep; which queues have messages that nobody sees now is told beside it.
"""

import time
from collections.abc import AsyncIterator
from typing import Any, Final

from shardmq.client.aio.channel import Channel
from shardmq.client.api.message import Message
from shardmq.errors import NotFound, RequestError
from shardmq.management.api.exchanges import exchange_name
from shardmq.management.dead_letters.finding import deaths
from shardmq.management.own.queues import all_queues_of, is_stream
from shardmq.management.own.routes import Map
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.message.json_values import plain
from shardmq.message.properties import Properties
from shardmq.search.filters import SearchFilters

HELD_MAX: Final = 100
"""Copies that are told; also how many queues with messages that are not seen."""

SECONDS_MAX: Final = 10.0
"""For searching all queues; what was found until then is told."""


class _Look:
    """A search of many queues for one message.

    Args:
        channel: in their virtual host, of the caller.
        message: its id.

    Attributes:
        looked_at: messages so far.
        is_partial: whether there was more to search than there was time.
        missed: the queues that could not be searched, each with the reason.
    """

    def __init__(self, channel: Channel, message: str) -> None:
        self._channel = channel
        self._filters = SearchFilters(message_id=message)
        self._until = time.monotonic() + SECONDS_MAX
        self.looked_at = 0
        self.is_partial = False
        self.missed: list[Row] = []

    async def among(self, queues: list[Row]) -> AsyncIterator[tuple[Row, Message]]:
        """The copies of the message in queues, each with its queue."""
        for row in queues:
            try:
                async for message in self._in(row["name"]):
                    yield row, message
            except NotFound:
                continue  # it was deleted meanwhile
            except RequestError as fault:
                self.missed.append({"queue": row["name"], "reason": fault.text})

    async def _in(self, queue: str) -> AsyncIterator[Message]:
        following: int | None = 0
        while following is not None:
            if time.monotonic() >= self._until:
                self.is_partial = True
                return
            page = await self._channel.messages_search(queue, self._filters, following)
            self.looked_at += page.looked_at
            for message in page.messages:
                yield message
            following = page.next


def _held(queue: Row, message: Message) -> Row:
    return {
        "queue": queue["name"],
        "is_stream": is_stream(queue),
        "position": message.position,
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "payload_bytes": len(message.body),
        "deaths": plain(deaths(message)),
    }


def _published(message: Message) -> tuple[str, str]:
    """The exchange and the key that a message was published with, before it died for the first time."""
    death: Any = deaths(message)[-1] if deaths(message) else {}
    if isinstance(death, dict) and isinstance(death.get("exchange"), str):
        keys = death.get("routing-keys")
        key = keys[0] if isinstance(keys, list) and keys else ""
        return death["exchange"], key if isinstance(key, str) else ""
    return message.exchange, message.routing_key


async def _route(call: Call, vhost: str, found: Message | None) -> Row | None:
    """Where it would go now: from the exchange that the request names, or from where it was published."""
    if "exchange" in call.query:
        exchange, key = exchange_name(call.query["exchange"]), call.query.get("routing_key", "")
    elif found is not None:
        exchange, key = _published(found)
    else:
        return None
    known = Map(*[await call.rows(noun, vhost) for noun in ("exchanges", "queues", "bindings")])
    passed, reached = known.route(exchange, key, Properties() if found is None else found.properties)
    return {"exchange": exchange, "routing_key": key, "exchanges": passed, "queues": reached}


def _unseen(row: Row) -> Row | None:
    """The messages of a queue that readers do not see; None where it has none."""
    unacked, delayed = row.get("unacked") or 0, row.get("delayed") or 0
    return {"queue": row["name"], "unacknowledged": unacked, "delayed": delayed} if unacked or delayed else None


async def trace(call: Call) -> Answer:
    """Where a message went."""
    vhost, wanted = await call.vhost(), call.part("message")
    queues = await all_queues_of(call, vhost)
    look = _Look(await call.channel(vhost), wanted)
    held: list[Row] = []
    found: Message | None = None
    async for queue, message in look.among([row for row in queues if is_stream(row) or row.get("ready") != 0]):
        if len(held) < HELD_MAX:
            held.append(_held(queue, message))
        found = found or message
    unseen = [row for row in map(_unseen, queues) if row is not None][:HELD_MAX]
    answer = {"held": held, "route": await _route(call, vhost, found), "unseen": unseen}
    return Answer({**answer, "looked_at": look.looked_at, "is_partial": look.is_partial, "missed": look.missed})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/traces/{vhost}/{message}",
        trace,
        Right.MANAGEMENT,
        "Where a message went, by its id.",
        Row,
        parameters=("exchange", "routing_key"),
    ),
)
"""What this file answers."""
