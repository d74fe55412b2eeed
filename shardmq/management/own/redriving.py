"""Redriving dead letters to the queues that they died in."""

import contextlib
import uuid
from typing import Any, Final

from shardmq.errors import ShardmqError
from shardmq.management.dead_letters.redriving import Redrive, Redriving
from shardmq.management.dead_letters.walking import LOOKED_AT_MAX, portions
from shardmq.management.own.choosing import chosen_by_body, text_in
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError

ID_CHARACTERS_MAX: Final = 64


def _flag(body: Row, name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ApiError.bad_request(f"{name} is {value!r}; give true or false")
    return value


def _limit(value: Any) -> int:
    if value is None:
        return LOOKED_AT_MAX
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ApiError.bad_request(f"limit is {value!r}; give a whole number from 1 on, or none")
    return min(value, LOOKED_AT_MAX)


def _id(body: Row) -> str:
    value = text_in(body, "id")
    if len(value) > ID_CHARACTERS_MAX or not (value.isascii() and value.isprintable()):
        raise ApiError.bad_request(f"id is {value[:80]!r}; give at most {ID_CHARACTERS_MAX} characters of ASCII")
    return value


async def redrive(call: Call) -> Answer:
    """Redrive dead letters to the queues that they died in last, or say what that would do."""
    vhost, queue = await call.vhost(), call.part("queue")
    body = await call.body()
    chosen, limit, is_dry, name = chosen_by_body(body), _limit(body.get("limit")), _flag(body, "dry_run"), _id(body)
    queues = {row["name"] for row in await call.rows("queues", vhost)} - {queue}
    work = Redrive(chosen, queues, limit)
    channel = await call.channel(vhost, own=True)
    try:
        if is_dry:
            async for messages in portions(channel, queue):
                work.choose(messages)
        else:
            redriving = Redriving(channel, queue, call.user, f"redrive-{name or uuid.uuid4().hex}")
            await _carry_out(call, redriving, work, name)
    finally:
        await channel.close()
    return Answer({"dry_run": is_dry, "redriven": work.count, "without_queue": work.homeless, "targets": work.targets})


async def _carry_out(call: Call, redriving: Redriving, work: Redrive, name: str) -> None:
    """Carry it out, unless the same one is under way; where it fails, only one that has an id keeps its reservation."""
    key = (call.part("vhost"), call.part("queue"), name)
    if name and key in call.facts.redriving:
        raise ApiError(409, "conflict", f"redrive '{name}' is under way; wait for its answer")
    call.facts.redriving.add(key)
    try:
        await redriving.carry_out(work)
    except BaseException:
        if not name:
            with contextlib.suppress(ShardmqError):  # the lease ends it, and what failed is told
                await redriving.release()
        raise
    finally:
        call.facts.redriving.discard(key)


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
