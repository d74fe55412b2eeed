"""Methods, handlers and iterators that bring messages, with spans around what the program does with them."""

import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from opentelemetry.trace import Tracer

from shardmq.client.api.message import Batch, Message
from shardmq.client.api.topics import Pulled
from shardmq.otel.spans import Processing, received

Method = Callable[..., Any]
Thing = Message | Batch


def messages_of(thing: Thing | Pulled | list[Message] | None) -> list[Message]:
    """The messages of what a method brought."""
    if thing is None:
        return []
    if isinstance(thing, Message):
        return [thing]
    return thing if isinstance(thing, list) else thing.messages


class _Current:
    """The span of what an iterator handed out last: it lasts until the program comes back for more.

    Args:
        tracer: of this library.
        group: the consumers' group, "" for none.
    """

    def __init__(self, tracer: Tracer, group: str = "") -> None:
        self._tracer = tracer
        self._group = group
        self._processing: Processing | None = None

    def begin(self, thing: Thing) -> None:
        """Begin the span of what is handed out."""
        self._processing = Processing(self._tracer, messages_of(thing), self._group)

    def end(self, error: BaseException | None = None) -> None:
        """End the span, if there is one."""
        ended, self._processing = self._processing, None
        if ended is not None:
            ended.end(error)


class TracedIterator(Iterator[Thing]):
    """An iterator over messages or batches, each with a span that is current while the program has it."""

    def __init__(self, inner: Iterator[Thing], current: _Current) -> None:
        self._inner = inner
        self._current = current

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Thing:
        self._current.end()
        thing = next(self._inner)
        self._current.begin(thing)
        return thing

    def close(self) -> None:
        """End the iteration, and with it the consumer."""
        self._current.end()
        cast("Any", self._inner).close()

    def __del__(self) -> None:
        self._current.end()


class TracedAsyncIterator(AsyncIterator[Thing]):
    """An asynchronous iterator over messages or batches, each with a span that is current while the program has it."""

    def __init__(self, inner: AsyncIterator[Thing], current: _Current) -> None:
        self._inner = inner
        self._current = current

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Thing:
        self._current.end()
        thing = await anext(self._inner)
        self._current.begin(thing)
        return thing

    async def aclose(self) -> None:
        """End the iteration, and with it the consumer."""
        self._current.end()
        await cast("Any", self._inner).aclose()

    def __del__(self) -> None:
        self._current.end()


def iterating(method: Method, tracer: Tracer) -> Method:
    """A method that returns an iterator over messages or batches; what it hands out has spans."""

    @functools.wraps(method)
    def iterate(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = method(self, *args, **kwargs)
        current = _Current(tracer, getattr(self, "group", ""))
        return TracedAsyncIterator(inner, current) if hasattr(inner, "__anext__") else TracedIterator(inner, current)

    return iterate


def receiving(method: Method, tracer: Tracer) -> Method:
    """A method, or coroutine function, that brings messages at once; the call has a span."""
    operation = method.__name__.removeprefix("basic_")
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def receive_later(*args: Any, **kwargs: Any) -> Any:
            began_ns = time.time_ns()
            thing = await method(*args, **kwargs)
            received(tracer, operation, messages_of(thing), began_ns)
            return thing

        return receive_later

    @functools.wraps(method)
    def receive(*args: Any, **kwargs: Any) -> Any:
        began_ns = time.time_ns()
        thing = method(*args, **kwargs)
        received(tracer, operation, messages_of(thing), began_ns)
        return thing

    return receive


def handling(method: Method, tracer: Tracer) -> Method:
    """`basic_consume`, whose handlers run in spans."""
    signature = inspect.signature(method)
    is_async = inspect.iscoroutinefunction(method)

    @functools.wraps(method)
    def consume(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        handler = bound.arguments["callback"]
        if callable(handler):
            traced = _traced_later(handler, tracer) if is_async else _traced(handler, tracer)
            bound.arguments["callback"] = traced
        return method(*bound.args, **bound.kwargs)

    return consume


class Steps:
    """A group consumer's steps (`__next__`, `__anext__`) and its end, wrapped: a message's span lasts until either.

    Args:
        tracer: of this library.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._currents: WeakKeyDictionary[Any, _Current] = WeakKeyDictionary()

    def stepping(self, method: Method) -> Method:
        """A step whose message has a span."""
        if inspect.iscoroutinefunction(method):

            @functools.wraps(method)
            async def step_later(consumer: Any) -> Any:
                self._end(consumer)
                message = await method(consumer)
                self._begin(consumer, message)
                return message

            return step_later

        @functools.wraps(method)
        def step(consumer: Any) -> Any:
            self._end(consumer)
            message = method(consumer)
            self._begin(consumer, message)
            return message

        return step

    def ending(self, method: Method) -> Method:
        """`close`, with which the last message's span ends."""

        @functools.wraps(method)
        def close(consumer: Any) -> Any:
            self._end(consumer)
            return method(consumer)

        return close

    def _begin(self, consumer: Any, message: Message) -> None:
        current = self._currents.get(consumer)
        if current is None:
            current = self._currents[consumer] = _Current(self._tracer, consumer.group)
        current.begin(message)

    def _end(self, consumer: Any) -> None:
        current = self._currents.get(consumer)
        if current is not None:
            current.end()


def _traced(handler: Method, tracer: Tracer) -> Callable[[Message], object]:
    @functools.wraps(handler, assigned=())
    def handle(message: Message) -> object:
        processing = Processing(tracer, [message], is_handled=True)
        try:
            outcome = handler(message)
        except BaseException as error:
            processing.end(error)
            raise
        processing.end()
        return outcome

    return handle


def _traced_later(handler: Method, tracer: Tracer) -> Callable[[Message], object]:
    @functools.wraps(handler, assigned=())
    async def handle(message: Message) -> object:
        processing = Processing(tracer, [message], is_handled=True)
        try:
            outcome = handler(message)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except BaseException as error:
            processing.end(error)
            raise
        processing.end()
        return outcome

    return handle
