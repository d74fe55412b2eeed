"""Bodies as a search looks into them: decompressed, within bounds, and read as JSON or MessagePack."""

import zlib
from typing import Any, Final

import msgspec

BODY_BYTES: Final = 128 << 10
"""Of a body that is looked at: reading so much JSON takes about a millisecond, in which nobody else is served."""

GZIP: Final = b"\x1f\x8b\x08"
"""How gzip data begin (RFC 1952)."""

_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_JSON_BEGINS: Final = frozenset(b'{["-0123456789tfn \t\r\n')

_json = msgspec.json.Decoder().decode
_msgpack = msgspec.msgpack.Decoder().decode


class Unreadable(Exception):
    """A body is no document, or not within the bounds."""


def decompressed(body: bytes, *, is_deflate: bool = False, limit: int = BODY_BYTES) -> tuple[bytes, bool]:
    """A body as it was before gzip or deflate, as far as the limit.

    Args:
        body: as it was published.
        is_deflate: the publisher says that it is deflate (content_encoding), which has no certain beginning.
        limit: bytes.

    Returns:
        The beginning, and whether there is more, also behind the end of what was compressed, or it breaks off.
    """
    if not is_deflate and not body.startswith(GZIP):
        return (body, False) if len(body) <= limit else (body[:limit], True)
    for window in (_GZIP_OR_ZLIB, -zlib.MAX_WBITS):  # some call raw deflate data "deflate", too
        unpacker = zlib.decompressobj(window)
        try:
            unpacked = unpacker.decompress(body, limit)
            return unpacked, not unpacker.eof or bool(unpacker.unused_data)
        except zlib.error:
            continue
    return body[:limit], True


def document(body: bytes, *, is_msgpack: bool = False) -> Any:
    """The document that a decompressed body is, as Python values.

    Args:
        body: all of it.
        is_msgpack: the publisher says so (content_type).

    Raises:
        Unreadable: it is neither JSON nor MessagePack.
    """
    if not body:
        raise Unreadable("the body is empty")
    read = _json if body[0] in _JSON_BEGINS and not is_msgpack else _msgpack
    try:
        return read(body)
    except (msgspec.DecodeError, RecursionError, ValueError, OverflowError, TypeError) as fault:
        raise Unreadable(str(fault)) from fault


def readable(body: bytes, *, is_msgpack: bool = False) -> str:
    """A body as text: MessagePack as JSON, anything else as UTF-8 with marks for what is none."""
    if is_msgpack or (body and 0x80 <= body[0] <= 0x9F):  # maps and arrays, which no text begins with
        try:
            return msgspec.json.encode(document(body, is_msgpack=True), enc_hook=str).decode()
        except (Unreadable, msgspec.EncodeError, RecursionError, ValueError, TypeError):
            pass  # it is something else: shown as it is
    return body.decode(errors="replace")
