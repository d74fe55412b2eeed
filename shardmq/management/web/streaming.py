"""Answers that are sent piece by piece, as they are too large to be in memory whole.

Each piece is made when the one before is with the client. What goes wrong before the first one is told as any error;
later, the connection is closed in the middle of the answer, so that nobody takes it for all there is.
"""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from aiohttp import hdrs, web

from shardmq.management.web.encoding import encoded

PIECE_BYTES: Final = 64 << 10
"""About how much is sent at once."""

PIECE_SECONDS: Final = 60.0
"""For making one piece."""

READ_SECONDS: Final = 60.0
"""For a client to read a piece, once the system's buffers are full: what it does not read waits in memory."""

GZIP: Final = zlib.MAX_WBITS | 16
FASTEST: Final = 1
"""Lists and metrics shrink to less than a tenth even so."""

Pieces = AsyncIterator[bytes]
Row = dict[str, Any]

_log = logging.getLogger(__name__)


async def json_list(pages: AsyncIterator[Iterable[Any]]) -> Pieces:
    """A list in JSON, of rows that come by the page."""
    piece = bytearray(b"[")
    is_first = True
    async for rows in pages:
        for row in rows:
            if not is_first:
                piece += b","
            is_first = False
            piece += encoded(row)
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
    yield bytes(piece + b"]")


async def json_table(table: Mapping[str, Any]) -> Pieces:
    """A table in JSON, the rows of its lists one by one."""
    opening = b"{"
    for name, value in table.items():
        yield opening + encoded(name) + b":"
        opening = b","
        if isinstance(value, list):
            async for piece in json_list(_at_once(value)):
                yield piece
        else:
            yield encoded(value)
    yield b"{}" if opening == b"{" else b"}"


async def _at_once(rows: list[Any]) -> AsyncIterator[list[Any]]:
    yield rows


async def whole(pieces: Pieces) -> bytes:
    """All pieces as one."""
    return b"".join([piece async for piece in pieces])


async def send(request: web.Request, pieces: Pieces, status: int, headers: Mapping[str, str]) -> web.StreamResponse:
    """Answer with pieces, compressed where the client can read that.

    Raises:
        ShardmqError, ApiError, TimeoutError: whatever making the first piece raises.
    """
    piece: bytes | None = await _next(pieces)
    if request.method == hdrs.METH_HEAD or piece is None:
        return web.Response(status=status, headers=headers)
    response = web.StreamResponse(status=status, headers=headers)
    pack = None
    if "gzip" in request.headers.get(hdrs.ACCEPT_ENCODING, "").lower():
        response.headers[hdrs.CONTENT_ENCODING] = "gzip"
        pack = zlib.compressobj(FASTEST, wbits=GZIP)
    await response.prepare(request)
    try:
        while piece is not None:
            if pack is not None:
                piece = pack.compress(piece)
            if piece:
                await _write(response, piece)
            piece = await _next(pieces)
        if pack is not None:
            await _write(response, pack.flush())
    except Exception as fault:  # noqa: BLE001  the status is sent: what is left to say is that this is not all
        _log.warning("%s %s: the answer broke off: %s", request.method, request.path, fault or type(fault).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


async def _write(response: web.StreamResponse, piece: bytes) -> None:
    async with asyncio.timeout(READ_SECONDS):
        await response.write(piece)


async def _next(pieces: Pieces) -> bytes | None:
    async with asyncio.timeout(PIECE_SECONDS):
        return await anext(pieces, None)
