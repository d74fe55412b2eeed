"""The contexts of traces in a record batch: those of messages whose `traceparent` says that they are sampled."""

import re
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.trace import SpanContext, TraceFlags

from shardmq.message.keyed_records import properties_of
from shardmq.message.record import deeper, unpack_properties
from shardmq.message.record_batch import AMQP, RecordBatch
from shardmq.protocol.amqp import properties

NAME: Final = b"traceparent"
_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
SPANS_MAX: Final = 64
"""Messages of one batch that have spans: of what a client marks as sampled by the thousand, the first ones do."""


def sampled(batch: RecordBatch) -> Iterator[tuple[int, SpanContext]]:
    """The messages of a batch that are sampled, `SPANS_MAX` at most: their places in it, and their contexts."""
    if NAME not in batch.records:
        return
    found = 0
    for place, packed in enumerate(properties_of(batch)):
        if NAME not in packed:
            continue
        with deeper():
            decoded = properties.decode(packed) if batch.flags & AMQP else unpack_properties(packed)
        context = _context_of(decoded.headers if decoded is not None else None)
        if context is not None:
            yield place, context
            found += 1
            if found == SPANS_MAX:
                return


def _context_of(headers: dict[str, Any] | None) -> SpanContext | None:
    """The context that headers name, if it is sampled (W3C Trace Context, section 3.2)."""
    value = (headers or {}).get("traceparent")
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    form = _FORM.fullmatch(value) if isinstance(value, str) else None
    if form is None:
        return None
    flags = TraceFlags(int(form[3], 16))
    context = SpanContext(int(form[1], 16), int(form[2], 16), is_remote=True, trace_flags=flags)
    return context if context.is_valid and flags.sampled else None
