"""One request: its path, parameters and body, and who asks."""

import asyncio
import re
import time
from collections.abc import Awaitable
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from shardmq.client.aio.channel import Channel
from shardmq.client.api.statistics import ListQuery
from shardmq.errors import AuthenticationFailed, NotFound, ReplyCode
from shardmq.management.state.callers import Caller
from shardmq.management.state.facts import Facts
from shardmq.management.state.large_requests import LargeRequests
from shardmq.management.web.authentication import PAGE_HEADER
from shardmq.management.web.errors import NO_ACCESS, PEERS_FAULTS, ApiError
from shardmq.topology.entities import SEE_ALL_TAGS

Row = dict[str, Any]

BODY_BYTES_MAX: Final = 1 << 20
"""Of a request, but of definitions and messages."""

LARGE_BYTES_MAX: Final = 32 << 20
"""Of a request with definitions or a message."""

QUERY_BYTES_MAX: Final = 8192

NESTING_MAX: Final = 250
"""Levels of tables and lists in a body. Beyond some 600, a process of the broker takes it for malformed."""

AHEAD_BYTES: Final = 256 << 10
"""So much of a large body is read before it takes one of the few places: smaller ones need none, nor do those that do
not come on."""

STALLED_SECONDS: Final = 10.0
"""A body of which nothing comes for so long is given up."""

LOOK_SECONDS: Final = 1.0
LOOK_BYTES: Final = 32 << 10
"""A body that has a place which others wait for is given up where less than this comes in this time."""


class Call:
    """One request, and who asks.

    Args:
        request: of aiohttp.
        caller: whose login; None where none is needed.
        facts: of this process and its broker.
        body_bytes_max: of the request's body.
    """

    def __init__(self, request: web.Request, caller: Caller | None, facts: Facts, body_bytes_max: int) -> None:
        self.request = request
        self.facts = facts
        self.query = request.query
        self._caller = caller
        self._body = Body(request, body_bytes_max)

    @property
    def caller(self) -> Caller:
        """Who asks."""
        assert self._caller is not None, "this endpoint has no caller"
        return self._caller

    @property
    def user(self) -> str:
        """The name of who asks."""
        return self.caller.user

    @property
    def sees_all(self) -> bool:
        """Whether the caller sees all virtual hosts."""
        return not SEE_ALL_TAGS.isdisjoint(self.caller.tags)

    def part(self, name: str) -> str:
        """A part of the path, decoded."""
        return self.request.match_info[name]

    async def overview(self) -> Row:
        """Sums of the broker, with what its processes tell; for browsers, as somebody of this user got it just now."""
        shared, key = self.facts.shared, (self.user, "overview")
        if PAGE_HEADER in self.request.headers:
            return cast(Row, await shared.get(key, self._overview))
        found = await self._overview()
        shared.keep(key, found)
        return found

    async def _overview(self) -> Row:
        with self.caller.held():
            connection = await self.caller.administration()
            return await connection.stats_overview(is_detailed=True)

    def forget(self, user: str) -> None:
        """Have a user log in again, as it was changed or deleted."""
        self.caller.forget_others(user)

    def has_flag(self, name: str) -> bool:
        """Whether a parameter is given as true."""
        return self.query.get(name, "").lower() == "true"

    async def rows(self, noun: str, vhost: str | None = None) -> list[Row]:
        """What the broker lists, of one virtual host or of all that the caller may see."""
        connection = await self.caller.administration()
        rows = await connection.topology(noun)
        return rows if vhost is None else [row for row in rows if row["vhost"] == vhost]

    async def row(self, noun: str, vhost: str, name: str) -> Row:
        """One row of a list.

        Raises:
            ApiError: there is none.
        """
        await self.check_vhost(vhost)
        if noun == "queues":  # of which there are too many to ask for all
            asked = ListQuery(vhost, name, with_statistics=False)
            rows: list[Row] = (await (await self.caller.administration()).stats_list(noun, asked))["items"]
        else:
            rows = await self.rows(noun, vhost)
        found = [row for row in rows if row["name"] == name]
        if not found:
            raise ApiError.not_found(f"no {noun.removesuffix('s')} '{name}' in vhost '{vhost}'")
        return found[0]

    async def vhost(self) -> str:
        """The virtual host that the path names.

        Raises:
            ApiError: there is none, or the caller has no permission there.
        """
        vhost = self.part("vhost")
        await self.check_vhost(vhost)
        return vhost

    async def check_vhost(self, vhost: str) -> None:
        """Make sure that the caller sees a virtual host.

        Raises:
            ApiError: there is none, or the caller has no permission there.
        """
        if any(row["name"] == vhost for row in await self.rows("vhosts")):
            return
        if self.sees_all:
            raise ApiError.not_found(f"no vhost '{vhost}'")
        raise ApiError.not_authorised(NO_ACCESS)

    async def channel(self, vhost: str, *, own: bool = False) -> Channel:
        """A channel in a virtual host, with the caller's permissions there; `own` is for the caller to close.

        Raises:
            ApiError: the caller has no permission there.
        """
        await self.check_vhost(vhost)
        try:
            return await (self.caller.own_channel(vhost) if own else self.caller.channel(vhost))
        except AuthenticationFailed as fault:
            if fault.code == ReplyCode.NOT_ALLOWED:
                raise ApiError.not_authorised(fault.text) from fault
            raise

    async def exists(self, declaring: Awaitable[object]) -> bool:
        """Whether a passive declaration finds what it asks for."""
        try:
            await declaring
        except NotFound:
            return False
        return True

    async def content(self) -> bytes:
        """The request's body.

        Raises:
            ApiError: it is too large.
        """
        return await self._body.rest()

    async def is_small(self, places: LargeRequests) -> bool:
        """Read the beginning of the body; returns whether that is all of it. The rest needs one of the places.

        Raises:
            ApiError: it is too large, or does not come on.
        """
        return await self._body.begin(places)

    async def body(self) -> Row:
        """The request's body as a table; none and null are an empty one.

        Raises:
            ApiError: it is no table in JSON, or too large.
        """
        return as_table(await self.content())


class Body:
    """A request's body, as far as it has come.

    Args:
        request: of aiohttp.
        most: bytes that it may have.
    """

    def __init__(self, request: web.Request, most: int) -> None:
        self._request = request
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self._places: LargeRequests | None = None
        self._looked_at, self._size_then = time.monotonic(), 0

    async def begin(self, places: LargeRequests) -> bool:
        """Read as much as needs no place; returns whether that is all of it.

        Raises:
            ApiError: it is too large, does not come on, or is not what its headers say.
        """
        while self._size < AHEAD_BYTES:
            if not await self._read():
                return True
        self._places = places
        return False

    async def rest(self) -> bytes:
        """Read what is left, and join it with what came before.

        Raises:
            ApiError: it is too large, does not come on, or is not what its headers say.
        """
        self._looked_at = time.monotonic()  # it may have waited for its place
        while await self._read():
            pass
        return b"".join(self._parts)

    async def _read(self) -> bool:
        """Read a part, if there is one more."""
        if (self._request.content_length or 0) > self._most:
            raise too_large(self._most)
        try:
            part = await self._next()
        except PEERS_FAULTS as fault:
            reason = f"the body cannot be read: {' '.join(str(fault).split()) or 'the connection was lost'}"
            raise ApiError(400, "bad_request", reason, {"Connection": "close"}) from fault
        self._size += len(part)
        if self._size > self._most:
            raise too_large(self._most)
        self._parts.append(part)
        return bool(part)

    async def _next(self) -> bytes:
        begun = time.monotonic()
        while True:
            self._look()
            try:
                return await asyncio.wait_for(self._request.content.read(1 << 16), LOOK_SECONDS)
            except TimeoutError:
                if time.monotonic() - begun >= STALLED_SECONDS:
                    raise _late(f"nothing of the body came for {STALLED_SECONDS:.0f} s") from None

    def _look(self) -> None:
        """Give up a body that comes slowly while others wait for its place."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_SECONDS:
            return
        came = self._size - self._size_then
        self._looked_at, self._size_then = now, self._size
        if came < LOOK_BYTES and self._places is not None and self._places.is_waited_for:
            raise _late(
                f"{came} bytes of the body came in {LOOK_SECONDS:.0f} s, while others wait; send it again, faster"
            )


def _late(reason: str) -> ApiError:
    return ApiError(408, "request_timeout", reason, {"Connection": "close"})


def as_table(content: bytes) -> Row:
    """A body as a table; none and null are an empty one.

    Raises:
        ApiError: it is no table in JSON, or one that the broker cannot read.
    """
    if not content.strip():
        return {}
    try:
        value = msgspec.json.decode(content)
        if content.count(b"[") + content.count(b"{") > NESTING_MAX:
            _check_nesting(value)
        if _SUSPECT.search(content):
            _check_words(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as fault:
        raise ApiError(400, "not_json", f"the body is no JSON: {fault}") from fault
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"the body is a JSON {type(value).__name__}; give an object")
    return value


def _check_nesting(value: Any) -> None:
    """Make sure that every process can read a body.

    Raises:
        ApiError: it nests too deep.
    """
    level: list[Any] = [[value]]
    for _ in range(NESTING_MAX + 1):
        tables = (each.values() if type(each) is dict else each for each in level)
        level = [inner for table in tables for inner in table if type(inner) is dict or type(inner) is list]
        if not level:
            return
    raise ApiError.bad_request(f"the body nests deeper than {NESTING_MAX} levels; make it flatter")


_SUSPECT: Final = re.compile(rb"\d{19}|\\u[dD][89a-fA-F]")
"""What may be a number or a character that no message of the broker can have; other bodies need no second look."""


def _check_words(value: Any) -> None:
    """Make sure that the broker has words for all numbers and texts in a body.

    Raises:
        ApiError: a number has more than 64 bits.
        UnicodeEncodeError: a text has half a character.
    """
    ahead = [value]
    while ahead:
        match ahead.pop():
            case dict() as table:
                ahead += table.keys()
                ahead += table.values()
            case list() as rows:
                ahead += rows
            case str() as text:
                text.encode()
            case bool():
                continue
            case int() as number if not -(2**63) <= number < 2**63:
                raise ApiError.bad_request(f"the body has the number {str(number)[:40]}; it needs more than 64 bits")


def too_large(most: int) -> ApiError:
    """The answer to a body of more bytes than these."""
    return ApiError(413, "payload_too_large", f"the body has more than {most} bytes")
