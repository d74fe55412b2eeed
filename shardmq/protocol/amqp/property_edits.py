"""Changes to a property list without decoding all of it."""

from collections.abc import Callable, Mapping

from shardmq.message.properties import Properties
from shardmq.protocol.amqp.properties import (
    _NO_TABLE,
    _WRITTEN,
    _joined,
    _spans,
    _values_of,
    _write_header,
    _write_shortstr,
)
from shardmq.protocol.amqp.tables import encode_entry, entries_of, wrapped


def without_bcc(raw: bytes) -> bytes:
    """A property list without its header BCC; there is a table of headers, though it may be empty."""
    return edited(raw, {}, lambda table: without(table, b"BCC"))


def with_reply_to(raw: bytes, value: str) -> bytes:
    """A property list with another reply_to."""
    written = _write_shortstr(value)
    assert written is not None, "names are short strings"
    return edited(raw, {"reply_to": written})


def edited(raw: bytes, values: Mapping[str, bytes | None], headers: Callable[[bytes], bytes] | None = None) -> bytes:
    """A property list with some of its values exchanged; all others keep their bytes.

    Args:
        raw: it, which was checked before.
        values: by name, encoded; None takes a property out.
        headers: makes new headers of those that are there, both with their size first; of none where there are none.
    """
    parts = {name: raw[at:end] for name, at, end in _spans(raw)}
    if headers is not None:
        parts["headers"] = headers(parts.get("headers", _NO_TABLE))
    for name, value in values.items():
        if value is None:
            parts.pop(name, None)
        else:
            parts[name] = value
    return _joined(parts)


def rewritten(raw: bytes, before: Properties, after: Properties) -> bytes:
    """A property list with what was changed in its properties. A value that is still the same object keeps its bytes.

    Args:
        raw: it, which was checked before.
        before: what it says.
        after: what it is to say.
    """
    values = {
        name: None if new is None else write(new)
        for old, new, (name, write, _) in zip(_values_of(before), _values_of(after), _WRITTEN, strict=True)
        if new is not old
    }
    old, new = before.headers or {}, after.headers or {}
    changed = {name: value for name, value in new.items() if name not in old or old[name] is not value}
    gone = [name.encode() for name in (*changed, *(name for name in old if name not in new))]
    if not gone:
        return edited(raw, values)
    entries = b"".join([encode_entry(name, _write_header(name, value)) for name, value in changed.items()])
    return edited(raw, values, lambda table: wrapped(b"", without(table, *gone)[4:] + entries))


def without(table: bytes, *names: bytes) -> bytes:
    """A table, its size first, without entries of those names."""
    return wrapped(b"", b"".join([table[at:end] for name, at, _, end in entries_of(table, 0) if name not in names]))
