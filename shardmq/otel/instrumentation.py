"""Which methods of the SDK have spans, and how that begins and ends."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry.trace import Tracer, TracerProvider

from shardmq.client.aio.channel import Channel as AioChannel
from shardmq.client.aio.groups import GroupConsumer as AioGroupConsumer
from shardmq.client.aio.publisher import Publisher as AioPublisher
from shardmq.client.sync.channel import Channel
from shardmq.client.sync.groups import GroupConsumer
from shardmq.client.sync.publisher import Publisher
from shardmq.errors import InvalidRequest
from shardmq.otel.consuming import Steps, handling, iterating, receiving
from shardmq.otel.publishing import sending
from shardmq.otel.spans import tracer_of

_MARK: Final = "_opentelemetry"
"""An attribute of the methods that are wrapped."""


class Instrumentation:
    """The SDK with spans around its methods; `instrument` begins one. A context manager: leaving it ends it."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._replaced: list[tuple[type, str, Any]] = []  # class, name, and the class's own method or None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Have the SDK as it was. Consumers that have begun keep their spans."""
        while self._replaced:
            owner, name, method = self._replaced.pop()
            if method is None:
                delattr(owner, name)
            else:
                setattr(owner, name, method)

    def _begin(self) -> None:
        steps = Steps(self._tracer)
        for channel, publisher, consumer in (
            (Channel, Publisher, GroupConsumer),
            (AioChannel, AioPublisher, AioGroupConsumer),
        ):
            self._wrap(channel, ("_publish",), sending)  # that is what `basic_publish` and `call` do
            self._wrap(publisher, ("publish", "publish_many", "publish_keyed"), sending)
            self._wrap(channel, ("basic_consume",), handling)
            self._wrap(channel, ("consume", "consume_batches", "reader"), iterating)
            self._wrap(channel, ("basic_get", "pull"), receiving)
            self._wrap(consumer, ("poll",), receiving)
            self._wrap(consumer, ("batches",), iterating)
            step = "__next__" if hasattr(consumer, "__next__") else "__anext__"
            self._wrap(consumer, (step,), lambda method, _: steps.stepping(method))
            self._wrap(consumer, ("close",), lambda method, _: steps.ending(method))

    def _wrap(
        self, owner: type, names: tuple[str, ...], wrapper: Callable[[Callable[..., Any], Tracer], Callable[..., Any]]
    ) -> None:
        for name in names:
            wrapped = wrapper(getattr(owner, name), self._tracer)
            setattr(wrapped, _MARK, True)
            self._replaced.append((owner, name, owner.__dict__.get(name)))
            setattr(owner, name, wrapped)


def instrument(tracer_provider: TracerProvider | None = None) -> Instrumentation:
    """Give all connections of this program, over threads and asyncio, OpenTelemetry spans.

    Contexts are written to and read from messages' headers by the global propagator. Until it is called, and after it
    ended, the SDK has no cost of it.

    Args:
        tracer_provider: where spans go; the global one when None.

    Returns:
        What ends it again.

    Raises:
        InvalidRequest: the SDK is instrumented already.
    """
    if hasattr(Channel._publish, _MARK):
        raise InvalidRequest("the SDK is instrumented already: end that instrumentation first")
    instrumentation = Instrumentation(tracer_of(tracer_provider))
    instrumentation._begin()
    return instrumentation
