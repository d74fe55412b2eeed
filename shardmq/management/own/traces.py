"""Where a message went: the queues that hold it, its deaths there, and the route it took or would take.

Messages are known by their id: the publisher's, or else the broker's, which is the same in every queue. Readers see
what is ready; which queues have messages that nobody sees now is told beside it.
"""

from typing import Any, Final

from shardmq.client.api.message import Message
from shardmq.management.api.exchanges import exchange_name
from shardmq.management.dead_letters.chosen import deaths
from shardmq.management.dead_letters.walking import Walk
from shardmq.management.own.queues import queues_of
from shardmq.management.own.routes import Map
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.message.json_values import plain
from shardmq.message.properties import Properties

HELD_MAX: Final = 100
"""Copies that are told; also how many queues with messages that are not seen."""


def _held(queue: str, message: Message) -> Row:
    return {
        "queue": queue,
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
    queues = await queues_of(call, vhost)
    walk = Walk(await call.channel(vhost), [row for row in queues if row.get("ready") != 0])
    held: list[Row] = []
    found: Message | None = None
    async for queue, messages in walk.portions():
        for message in messages:
            if message.message_id == wanted and len(held) < HELD_MAX:
                held.append(_held(queue, message))
                found = found or message
    unseen = [row for row in map(_unseen, queues) if row is not None][:HELD_MAX]
    answer = {"held": held, "route": await _route(call, vhost, found), "unseen": unseen}
    return Answer({**answer, "looked_at": walk.looked_at, "is_partial": walk.is_partial, "missed": walk.missed})


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
