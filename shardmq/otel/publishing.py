"""Publishing methods with PRODUCER spans around them, whose contexts travel in the messages."""

import functools
import inspect
from collections.abc import Callable, Sized
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Tracer

from shardmq.otel.carrier import extract, inject
from shardmq.otel.spans import described, sent_to

Method = Callable[..., Any]


class _Sends:
    """What spans of one publishing method begin with.

    Args:
        method: of the SDK.
        tracer: of this library.
    """

    def __init__(self, method: Method, tracer: Tracer) -> None:
        self._signature = inspect.signature(method)
        self._name = method.__name__.removeprefix("_")
        self._tracer = tracer

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Span, inspect.BoundArguments]:
        """Begin a span, and put its context into the message's properties."""
        bound = self._signature.bind(*args, **kwargs)
        given = bound.arguments
        name, place = sent_to(str(given["exchange"]), str(given.get("routing_key", "")))
        attributes: dict[str, str | bool | int] = {**place, **described(self._name, "send")}
        properties = given.get("properties")
        headers = properties.headers if properties is not None else None
        if isinstance(body := given.get("body"), bytes):
            attributes["messaging.message.body.size"] = len(body)
        elif isinstance(many := given.get("bodies", given.get("messages")), Sized):
            attributes["messaging.batch.message_count"] = len(many)
        if properties is not None and properties.message_id is not None:
            attributes["messaging.message.id"] = properties.message_id
        created = trace.get_current_span(extract(headers, Context())).get_span_context()
        links = [Link(created)] if created.is_valid else []
        span = self._tracer.start_span(f"{self._name} {name}", None, SpanKind.PRODUCER, attributes, links)
        given["properties"] = inject(properties, trace.set_span_in_context(span))
        return span, bound


def sending(method: Method, tracer: Tracer) -> Method:
    """A publishing method, or coroutine function, with a span around each call.

    Args:
        method: takes an exchange, and properties by that name.
        tracer: of this library.
    """
    sends = _Sends(method, tracer)
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def send_later(*args: Any, **kwargs: Any) -> Any:
            span, bound = sends.begin(args, kwargs)
            with trace.use_span(span, end_on_exit=True):
                return await method(*bound.args, **bound.kwargs)

        return send_later

    @functools.wraps(method)
    def send(*args: Any, **kwargs: Any) -> Any:
        span, bound = sends.begin(args, kwargs)
        with trace.use_span(span, end_on_exit=True):
            return method(*bound.args, **bound.kwargs)

    return send
