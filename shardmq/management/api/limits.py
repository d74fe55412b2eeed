"""Limits of virtual hosts and users."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from shardmq.management.web.body import number
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Handler, Right
from shardmq.management.web.errors import ApiError

LIMITS: Final = {"vhost": ("max-connections", "max-queues"), "user": ("max-connections", "max-channels")}
"""The limits that there are."""


async def _limited(call: Call, noun: str) -> list[Row]:
    rows = await call.rows(f"{noun}s")
    return [{noun: row["name"], "value": row["limits"]} for row in rows if row["limits"]]


def lister(noun: str) -> Handler:
    """Lists what has limits."""

    async def list_limits(call: Call) -> Answer:
        return Answer(await _limited(call, noun))

    return list_limits


async def _check(call: Call, noun: str) -> str:
    name = call.part(noun)
    if noun == "vhost":
        await call.check_vhost(name)
    elif all(row["name"] != name for row in await call.rows("users")):
        raise ApiError.not_found(f"no user '{name}'")
    return name


def getter(noun: str) -> Handler:
    """Tells the limits of one, as a list."""

    async def get_limits(call: Call) -> Answer:
        name = await _check(call, noun)
        return Answer([row for row in await _limited(call, noun) if row[noun] == name])

    return get_limits


def _limit(call: Call, noun: str) -> str:
    limit = call.part("limit")
    if limit not in LIMITS[noun]:
        raise ApiError.bad_request(f"there is no limit '{limit}' of a {noun}; there are {', '.join(LIMITS[noun])}")
    return limit


def putter(noun: str) -> Handler:
    """Sets a limit; a negative one lifts it, as in RabbitMQ."""

    async def put_limit(call: Call) -> Answer:
        name, limit = await _check(call, noun), _limit(call, noun)
        value = number(await call.body(), "value")
        connection = await call.caller.administration()
        await connection.limits_put(noun, name, {limit: None if value < 0 else value})
        return NO_CONTENT

    return put_limit


def lifter(noun: str) -> Handler:
    """Lifts a limit."""

    async def delete_limit(call: Call) -> Answer:
        name, limit = await _check(call, noun), _limit(call, noun)
        await (await call.caller.administration()).limits_put(noun, name, {limit: None})
        return NO_CONTENT

    return delete_limit


class LimitBody(msgspec.Struct):
    """A limit; a negative one lifts it."""

    value: int


def _endpoints(noun: str, right: Right) -> tuple[Endpoint, ...]:
    makers: tuple[tuple[str, str, Callable[[str], Handler], Right, str, Any], ...] = (
        ("GET", "", lister, right, f"Limits of all {noun}s.", list[Row]),
        ("GET", f"/{{{noun}}}", getter, right, f"Limits of a {noun}.", list[Row]),
        ("PUT", f"/{{{noun}}}/{{limit}}", putter, Right.ADMINISTRATOR, "Set a limit.", None),
        ("DELETE", f"/{{{noun}}}/{{limit}}", lifter, Right.ADMINISTRATOR, "Lift a limit.", None),
    )
    return tuple(
        Endpoint(
            method,
            f"/{noun}-limits{path}",
            make(noun),
            needed,
            summary,
            answer,
            LimitBody if method == "PUT" else None,
        )
        for method, path, make, needed, summary, answer in makers
    )


ENDPOINTS: Final = (*_endpoints("vhost", Right.MANAGEMENT), *_endpoints("user", Right.ADMINISTRATOR))
"""What this file answers."""
