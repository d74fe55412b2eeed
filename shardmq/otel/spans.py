"""Spans of messages, named and described as OpenTelemetry's messaging conventions say (semantic conventions 1.30)."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from shardmq.client.api.message import Message
from shardmq.otel.carrier import extract
from shardmq.version import VERSION

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.30.0"
LINKS_MAX: Final = 128
"""Links of a span, as many as OpenTelemetry's SDK keeps."""

ANONYMOUS: Final = ("amq.gen-", "amq.rabbitmq.reply-to")
"""What names of queues begin with that the broker made up: too many for names of spans."""


def tracer_of(provider: TracerProvider | None = None) -> Tracer:
    """The tracer of this library; of the global provider when None."""
    return trace.get_tracer("shardmq", VERSION, provider, SCHEMA_URL)


def sent_to(exchange: str, routing_key: str) -> tuple[str, dict[str, str | bool]]:
    """A short name of where messages are published to, and attributes that say it whole.

    The name has no routing key, but for the default exchange, where it is the queue: keys of topics are too many.
    """
    destination = ":".join(part for part in (exchange, routing_key) if part) or "amq.default"
    attributes: dict[str, str | bool] = {"messaging.destination.name": destination}
    if routing_key:
        attributes["messaging.rabbitmq.destination.routing_key"] = routing_key
    if not exchange and routing_key.startswith(ANONYMOUS):
        attributes["messaging.destination.anonymous"] = True
        return "(anonymous)", attributes
    return exchange or routing_key or "amq.default", attributes


def received_from(messages: Sequence[Message]) -> tuple[str, dict[str, str | bool | int]]:
    """A short name of where messages came from, and attributes of them."""
    first = messages[0]
    parts = (first.exchange, first.routing_key, first.queue)
    named = list(dict.fromkeys(part for part in parts if part))  # a queue's name is its key in the default exchange
    attributes: dict[str, str | bool | int] = {"messaging.destination.name": ":".join(named)}
    if first.routing_key and len(messages) == 1:
        attributes["messaging.rabbitmq.destination.routing_key"] = first.routing_key
    if first.partition is not None:
        attributes["messaging.destination.partition.id"] = str(first.partition)
    if len(messages) == 1:
        attributes["messaging.message.id"] = first.message_id
        attributes["messaging.message.body.size"] = len(first.body)
    else:
        attributes["messaging.batch.message_count"] = len(messages)
    if first.queue.startswith(ANONYMOUS):
        attributes["messaging.destination.anonymous"] = True
        return "(anonymous)", attributes
    return first.queue, attributes


def described(operation: str, kind: str) -> dict[str, str]:
    """Attributes of all spans: the system, the operation by our name, and by that of the conventions."""
    return {"messaging.system": "shardmq", "messaging.operation.name": operation, "messaging.operation.type": kind}


def links_to(messages: Iterable[Message]) -> list[Link]:
    """A link to the creation of each message that brought its context, each once, at most `LINKS_MAX`."""
    links: dict[tuple[int, int], Link] = {}
    for message in messages:
        found = trace.get_current_span(extract(message, Context())).get_span_context()
        if found.is_valid:
            links.setdefault((found.trace_id, found.span_id), Link(found))
        if len(links) == LINKS_MAX:
            break
    return list(links.values())


class Processing:
    """The CONSUMER span of messages that the program works on; current from `begin` to `end`.

    The span of one message continues its trace, unless a span of the program's is current around a loop; that of
    several is only linked.

    Args:
        tracer: of this library.
        messages: one or more.
        group: the consumers' group, "" for none.
        is_handled: by a handler; a span that is current there is that under which it was set up.
    """

    __slots__ = ("_before", "_span")

    def __init__(self, tracer: Tracer, messages: Sequence[Message], group: str = "", is_handled: bool = False) -> None:
        self._before = contexts.get_current()
        parent = self._before
        if is_handled:
            parent = extract(messages[0], Context())
        elif len(messages) == 1 and not trace.get_current_span().get_span_context().is_valid:
            parent = extract(messages[0])
        name, attributes = received_from(messages)
        attributes.update(described("process", "process"))
        if group:
            attributes["messaging.consumer.group.name"] = group
        self._span = tracer.start_span(f"process {name}", parent, SpanKind.CONSUMER, attributes, links_to(messages))
        contexts.attach(trace.set_span_in_context(self._span, parent))

    @property
    def span(self) -> Span:
        """The span."""
        return self._span

    def end(self, error: BaseException | None = None) -> None:
        """End the span, and make what was current before it current again.

        Args:
            error: what the program raised.
        """
        if isinstance(error, Exception):
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        self._span.end()
        if trace.get_current_span() is self._span:  # else it is ended elsewhere than it began: by a garbage collector
            contexts.attach(self._before)


@contextmanager
def processing(
    *messages: Message, tracer_provider: TracerProvider | None = None, group: str = ""
) -> Generator[Span, None, None]:
    """A CONSUMER span around what a program does with messages, for those that no instrumented method handles.

    Args:
        messages: one or more; the span is linked to the creation of each.
        tracer_provider: where spans go; the global one when None.
        group: the consumers' group, "" for none.

    Yields:
        The span, which is current.
    """
    if not messages:
        raise ValueError("processing is of one message or more, not of none")
    current = Processing(tracer_of(tracer_provider), messages, group)
    try:
        yield current.span
    except BaseException as error:
        current.end(error)
        raise
    current.end()


def received(tracer: Tracer, operation: str, messages: Sequence[Message], began_ns: int) -> None:
    """Export the CLIENT span of a call that brought messages.

    Args:
        tracer: of this library.
        operation: the call's name.
        messages: what it brought; of none there is no span.
        began_ns: when it was called, in nanoseconds since 1970.
    """
    if messages:
        name, attributes = received_from(messages)
        attributes.update(described(operation, "receive"))
        links: Any = links_to(messages)
        tracer.start_span(f"{operation} {name}", None, SpanKind.CLIENT, attributes, links, start_time=began_ns).end()
