"""A trace's context in a message's headers, as the program's global propagator writes and reads it."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter

from shardmq.client.api.message import Message
from shardmq.message.properties import Properties

_NO_PROPERTIES: Final = Properties()


class _Headers(Getter[Mapping[str, Any]]):
    """Reads headers; those of AMQP programs may be bytes."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        if isinstance(value, bytes):
            return [value.decode("utf-8", "replace")]
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


_HEADERS: Final = _Headers()


def inject(properties: Properties | None, context: Context | None = None) -> Properties | None:
    """A message's properties with a trace's context in their headers.

    A context that is there already is kept: it is that of the message's creation, which those who pass a message on do
    not change.

    Args:
        properties: of a message that is to be published; they are not changed.
        context: what to write; the current one when None.

    Returns:
        Properties to publish it with; the same where there is nothing to write.
    """
    headers = (properties.headers if properties is not None else None) or {}
    if trace.get_current_span(extract(headers, Context())).get_span_context().is_valid:
        return properties
    written: dict[str, str] = {}
    propagate.inject(written, context)
    if not written:
        return properties
    return replace(properties or _NO_PROPERTIES, headers={**headers, **written})


def extract(source: Message | Mapping[str, Any] | None, context: Context | None = None) -> Context:
    """The context that came with a message.

    Args:
        source: a message, or its headers.
        context: what it is added to; the current one when None.

    Returns:
        A context for `tracer.start_span(context=…)`; the one it is added to where the message brought none.
    """
    headers = source.properties.headers if isinstance(source, Message) else source
    return propagate.extract(headers or {}, context, _HEADERS)
