"""Dead letters by reason and source: of one queue, and of all queues of a virtual host; which ones a request means."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shardmq.management.dead_letters.counting import Groups, count_all
from shardmq.management.dead_letters.finding import died
from shardmq.management.dead_letters.walking import Walk
from shardmq.management.own.queues import queues_of
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.search.filters import SearchFilters

DIGITS_MAX: Final = 12
"""Of an age in seconds."""

AGES: Final = ("older_than", "newer_than")
"""The names of the ages."""

FILTERS: Final = ("reason", "source", *AGES, "key", "header", "text", "regex", "json", "message_id")
"""The names of all filters."""


def chosen_by_query(call: Call) -> SearchFilters:
    """Which dead letters a request for a list means; `header` and `json` may be repeated.

    Raises:
        ApiError: an age is no number, or filters are too many, or too long.
    """
    query = call.query
    given: Row = {name: query.get(name, "") for name in FILTERS}
    for name in ("header", "json"):
        given[name] = query.getall(name, [])
    for name in AGES:
        text = query.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
            raise ApiError.bad_request(f"{name} is '{text[:40]}'; give seconds, a whole number")
        given[name] = int(text) if text else None
    return _chosen(given)


def chosen_by_body(body: Row) -> SearchFilters:
    """Which dead letters the body of a request means.

    Raises:
        ApiError: a field has another type, or filters are too many, or too long.
    """
    given: Row = {name: text_in(body, name) for name in FILTERS if name not in (*AGES, "header", "json")}
    for name in ("header", "json"):
        value = body.get(name) or []
        given[name] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in given[name]):
            raise ApiError.bad_request(f"{name} is {value!r:.40}; give a text, or a list of texts")
    for name in AGES:
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ApiError.bad_request(f"{name} is {value!r:.40}; give seconds, a whole number, or none")
        given[name] = value
    return _chosen(given)


def text_in(body: Row, name: str) -> str:
    """A text of a body, "" where there is none.

    Raises:
        ApiError: it is something else.
    """
    value = body.get(name, "")
    if not isinstance(value, str):
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give a text")
    return value


def number_in(body: Row, name: str, default: int, least: int, most: int) -> int:
    """A whole number of a body, at most `most`.

    Raises:
        ApiError: it is something else, or less than `least`.
    """
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give a whole number from {least} on, or none")
    return min(value, most)


def _chosen(given: Mapping[str, Any]) -> SearchFilters:
    headers = [text.partition("=") for text in given["header"] if text]
    try:
        return msgspec.convert(
            {
                "key": given["key"],
                "headers": [(name, value if equals else None) for name, equals, value in headers],
                "text": given["text"],
                "regex": given["regex"],
                "json": [text for text in given["json"] if text.strip()],
                "message_id": given["message_id"],
                "death": msgspec.to_builtins(died(given["reason"], given["source"], *[given[name] for name in AGES])),
            },
            SearchFilters,
        )
    except msgspec.ValidationError as fault:
        raise ApiError.bad_request(f"the filters are too long or too many: {fault}") from fault


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
