"""Redriving dead letters to the queues that they died in.

A dry run answers with the `ranges` of messages that would go; where a redrive is sent these, it moves those of them
that are still there, and no others. Both search for `seconds`, and say in `next` where to go on: who asks piece by
piece shows progress, and who asks for no more has cancelled the rest.
"""

import contextlib
from typing import Any, Final

from shardmq.errors import ShardmqError
from shardmq.limits import RANGES_MAX
from shardmq.management.dead_letters.finding import Selection
from shardmq.management.dead_letters.redriving import Redriving
from shardmq.management.own.dead_letters import chosen_by_body, number_in, text_in
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

ID_CHARACTERS_MAX: Final = 64

MOVED_MAX: Final = 20_000
"""Messages that one request redrives, for an answer in time."""

SECONDS: Final = 20
SECONDS_MAX: Final = 40
"""Of searching, for one answer."""


def _flag(body: Row, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give true or false")
    return value


def _id(body: Row) -> str:
    value = text_in(body, "id")
    if len(value) > ID_CHARACTERS_MAX or not (value.isascii() and value.isprintable()):
        raise ApiError.bad_request(f"id is {value[:80]!r}; give at most {ID_CHARACTERS_MAX} characters of ASCII")
    return value


def _ranges(body: Row) -> list[tuple[int, int]] | None:
    """The messages that a dry run has shown; None where none are given."""
    value: Any = body.get("ranges")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > RANGES_MAX or not all(_is_range(each) for each in value):
        raise ApiError.bad_request(f"ranges are not those of a dry run: give at most {RANGES_MAX} [first, end]")
    return sorted([(first, end) for first, end in value])


def _is_range(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value)
    return is_pair and 0 <= value[0] < value[1] < 2**63


async def redrive(call: Call) -> Answer:
    """Redrive dead letters to the queues that they died in last, or say what that would do."""
    vhost, queue = await call.vhost(), call.part("queue")
    body = await call.body()
    filters, ranges, is_dry, name = chosen_by_body(body), _ranges(body), _flag(body, "dry_run"), _id(body)
    limit, first = number_in(body, "limit", MOVED_MAX, 1, MOVED_MAX), number_in(body, "start", 0, 0, 1 << 62)
    seconds = number_in(body, "seconds", SECONDS, 1, SECONDS_MAX)
    if ranges is not None and is_dry:
        raise ApiError.bad_request("ranges are what a dry run answers; send them without dry_run")
    queues = {row["name"] for row in await call.rows("queues", vhost)} - {queue}
    found = Selection(queues, limit, first)
    channel = await call.channel(vhost, own=True)
    try:
        if ranges is None:
            await found.search(channel, queue, filters, seconds)
        facts: Row = {
            "looked_at": found.looked_at,
            "left": found.left,
            "next": found.following if ranges is None else None,
        }
        if is_dry:
            count, homeless, targets = found.count, found.homeless, found.targets
            facts["ranges"] = found.ranges
        else:
            redriving = Redriving(channel, queue, call.user, f"redrive-{name}" if name else None, queues)
            await _carry_out(call, redriving, found.ranges if ranges is None else ranges, name)
            count, homeless, targets = redriving.moved, found.homeless + redriving.homeless, redriving.targets
    finally:
        await channel.close()
    return Answer({"dry_run": is_dry, "redriven": count, "without_queue": homeless, "targets": targets, **facts})


async def _carry_out(call: Call, redriving: Redriving, ranges: list[tuple[int, int]], name: str) -> None:
    """Carry it out, unless the same one is under way; those of a user that have no id wait for one another."""
    key = (call.part("vhost"), call.part("queue"), name)
    if not name:
        async with call.facts.moving(*key[:2], call.user):
            await _carry_out_unnamed(redriving, ranges)
        return
    if key in call.facts.redriving:
        raise ApiError(409, "conflict", f"redrive '{name}' is under way; wait for its answer")
    call.facts.redriving.add(key)
    try:
        await redriving.carry_out(ranges)
    finally:
        call.facts.redriving.discard(key)


async def _carry_out_unnamed(redriving: Redriving, ranges: list[tuple[int, int]]) -> None:
    await redriving.settle()
    try:
        await redriving.carry_out(ranges)
    except BaseException:
        with contextlib.suppress(ShardmqError):  # the next redrive does so, and what failed is told
            await redriving.settle()
        raise


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/shardmq/queues/{vhost}/{queue}/redrive",
        redrive,
        Right.MANAGEMENT,
        "Redrive dead letters to the queues that they died in.",
        Row,
        Row,
    ),
)
"""What this file answers."""
