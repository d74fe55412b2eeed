"""What is written into dead letters: x-death, the first and the last death.

It follows RabbitMQ with message containers, 3.13 and later (`mc:record_death`, and
`mc_amqpl:death_table`, which makes tables of it; https://www.rabbitmq.com/docs/3.13/dlx). Two things are as before,
in `rabbit_dead_letter:make_msg` up to 3.12: CC is removed where a key is given, and the history is what stands in the
headers, also where a client published a message again with them.

* `x-death` is an array of tables, most recent first, one for each (queue, reason): count, reason, queue, time (of the
  first such death), exchange and routing-keys (with those of CC) it was published with then, and original-expiration
  where it had a time to live of its own. A further death of the same queue and reason adds 1 to its count and moves it
  to the front; the rest stays as it was.
* `x-first-death-queue`, `-reason`, `-exchange` are written once, `x-last-death-…` each time.
* `x-retry-count` is written where the queue sends messages back before they die (x-retry-delays, not in RabbitMQ): how
  often it did.
* The property `expiration` is removed: it does not expire again where it gets to.
* It keeps its routing key, and CC counts again; with `x-dead-letter-routing-key` it has that alone, and CC is removed.
* What came by AMQP keeps its other properties and headers byte for byte.
"""

import datetime
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from shardmq.bus.messages.dead_letters import DeadLetter
from shardmq.errors import RequestError
from shardmq.gateway.session.publish_split import CC, routing_keys
from shardmq.message.properties import Properties

RETRIES: Final = "x-retry-count"
"""The header of a dead letter that says how often its queue had sent it back before (x-retry-delays)."""

REJECTED: Final = "rejected"
"""The reason that is a decision of somebody's, and so no part of a cycle that turns by itself."""

COUNT_MAX: Final = 2**63 - 1
"""The most that the count of a death may be: AMQP's largest integer."""


def with_death(known: Properties | None, dead: DeadLetter, queue: str, key: str | None, now_ms: int) -> Properties:
    """A message's properties, with its death written into them.

    Args:
        known: its properties, as they were.
        dead: the death, and where the message was published to.
        queue: that it died in.
        key: the routing key it goes on with; None for its own.
        now_ms: the time of death, milliseconds since 1970.
    """
    before = Properties() if known is None else known
    headers = dict(before.headers or {})
    reason, exchange = dead.reason, dead.batch.exchange
    deaths = _deaths(headers)
    if not deaths:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = queue
        headers["x-first-death-exchange"] = exchange
    headers["x-last-death-reason"] = reason
    headers["x-last-death-queue"] = queue
    headers["x-last-death-exchange"] = exchange
    same: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for death in deaths:
        (same if death.get("queue") == queue and death.get("reason") == reason else others).append(death)
    if same:
        newest = {**same[0], "count": min(sum(map(_count, same)) + 1, COUNT_MAX)}
    else:
        newest = {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": datetime.datetime.fromtimestamp(now_ms // 1000, datetime.UTC),
            "exchange": exchange,
            "routing-keys": [dead.batch.routing_key, *cc_keys(headers)],
        }
        if before.expiration is not None:
            newest["original-expiration"] = before.expiration
    headers["x-death"] = [newest, *others]
    if key is not None:
        headers.pop(CC, None)
    return msgspec.structs.replace(before, headers=headers, expiration=None)


def is_cycle(queue: str, deaths: Sequence[dict[str, Any]]) -> bool:
    """Whether a message has been in a queue before, and would get back to it with nobody having rejected it.

    Args:
        queue: the one it would get to.
        deaths: its `x-death`, most recent first.
    """
    for death in deaths:
        if death.get("reason") == REJECTED:
            return False
        if death.get("queue") == queue:
            return True
    return False


def _deaths(headers: dict[str, Any]) -> list[dict[str, Any]]:
    """The deaths written there; a publisher may have put anything under that name."""
    deaths = headers.get("x-death")
    return [death for death in deaths if isinstance(death, dict)] if isinstance(deaths, list) else []


def _count(death: dict[str, Any]) -> int:
    count = death.get("count")
    return count if isinstance(count, int) and 0 < count < COUNT_MAX else 1


def cc_keys(headers: dict[str, Any]) -> list[str]:
    """The routing keys of CC; none where it is no array, or has too many, as not every publisher checks it."""
    try:
        return routing_keys(headers, CC)
    except RequestError:
        return []
