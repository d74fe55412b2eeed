"""After a reconnect: channels, exchanges, queues, bindings and consumers are made again, in that order. No I/O.

A stage's requests are sent together; the next begins when all are answered. What cannot be made is noted and left;
what may be possible soon (the lost connection still has an exclusive queue, a shard is being restarted) is asked again.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from shardmq.client.core.channel import ChannelCore
from shardmq.errors import NotFound, ResourceLocked, ShardmqError, Unavailable
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import ExchangeBind, QueueBind, QueueDeclare

if TYPE_CHECKING:
    from shardmq.client.core.connection import ConnectionCore


RESTS_MAX: Final = 60
"""Half a minute: a lost gateway's exclusive queues are gone after ten seconds, a shard is restarted in fewer."""

Done = Callable[[Any], None]
Failed = Callable[[ShardmqError], None]


class _Step:
    """The reply to one request of a stage."""

    __slots__ = ("_done", "_failed", "_kind", "_restoring", "_what", "channel", "fields")

    def __init__(
        self,
        restoring: "Restore",
        what: str,
        kind: Callable[..., Operation],
        channel: ChannelCore,
        fields: tuple[Any, ...],
        done: Done,
        failed: Failed,
    ) -> None:
        self._restoring = restoring
        self._what = what
        self._kind = kind
        self.channel = channel
        self.fields = fields
        self._done = done
        self._failed = failed

    def done(self) -> bool:
        return self._restoring.is_over

    def ask(self) -> None:
        self._restoring.core.ask_at_once(self._kind, self.channel, self, *self.fields)

    def set_result(self, result: Any, /) -> None:
        self._done(result)
        self._restoring.answered()

    def set_exception(self, error: Any, /) -> None:
        if isinstance(error, ResourceLocked | Unavailable) and self._restoring.may_rest():
            self._restoring.later.append(self)
        else:
            self._restoring.failures.append(f"{self._what}: {error}")
            self._failed(error)
        self._restoring.answered()


class Restore:
    """One restoration, from the connection's Ok to its end.

    Attributes:
        core: the connection.
        later: steps to be asked again after a rest.
        failures: a sentence for each thing that could not be made.
        is_over: it is done, or the connection was lost again.
    """

    def __init__(self, core: "ConnectionCore") -> None:
        self.core = core
        self.later: list[_Step] = []
        self.failures: list[str] = []
        self.is_over = False
        self._rests = 0
        self._under_way = 0
        self._own: ChannelCore | None = None  # to declare on, where the program has no channel
        self._stages = self._plan()

    @property
    def is_resting(self) -> bool:
        """Whether `rested` is to be called after REST_SECONDS."""
        return not self.is_over and not self._under_way and bool(self.later)

    def may_rest(self) -> bool:
        """Whether trying again later is still worth it."""
        return self._rests < RESTS_MAX

    def begin(self) -> None:
        """The connection is open."""
        self._go_on()

    def abandon(self) -> None:
        """The connection was lost again."""
        self.is_over = True
        if self._own is not None:
            self.core.free(self._own)

    def rested(self) -> None:
        """Try again what failed."""
        self._rests += 1
        steps, self.later = self.later, []
        for step in steps:
            self._send(step)
        if not self._under_way:  # their channels were closed meanwhile
            self._go_on()

    def answered(self) -> None:
        """A step was answered."""
        self._under_way -= 1
        if not self._under_way and not self.later:
            self._go_on()

    def _go_on(self) -> None:
        for _ in self._stages:
            if self._under_way or self.later:
                return
        self.is_over = True
        self.core.restored(self.failures)

    def _plan(self) -> Iterator[None]:
        core, declared = self.core, self.core.declared
        while channels := [channel for channel in core.channels() if not channel.is_open]:
            for channel in channels:
                self._open(channel)
            yield
        if not core.channels() and (declared.exchanges or declared.queues or declared.bindings):
            self._own = core.new_channel()
            self._open(self._own)
            yield
        for exchange in list(declared.exchanges.values()):
            self._make(f"exchange '{exchange.exchange}'", exchange)
        yield
        for name, queue in list(declared.queues.items()):
            self._make_queue(name, queue)
        yield
        for bound in list(declared.bindings.values()):
            self._make(f"a binding of '{_source(bound)}'", bound)
        yield
        for channel in core.channels():
            for tag, consumer in list(channel.consumers.items()):
                self._make_consumer(channel, tag, consumer)
        yield
        if self._own is not None:
            self._step("a channel", ChannelClose, self._own, (), lambda _: None)
            core.free(self._own)
            yield
        while channels := [channel for channel in core.channels() if not channel.is_open]:  # opened meanwhile
            for channel in channels:
                self._open(channel)
            yield

    def _open(self, channel: ChannelCore) -> None:
        def opened(_: Any) -> None:
            channel.is_open = True
            opening, channel.opening = channel.opening, None
            if opening is not None and not opening.done():
                opening.set_result(None)

        def failed(error: ShardmqError) -> None:
            self.core.end_channel(channel, error)
            self.core.free(channel)

        self._step(f"channel {channel.number}", ChannelOpen, channel, (), opened, failed)

    def _make(self, what: str, operation: Operation) -> None:
        channel = self._channel()
        if channel is not None:
            self._step(what, type(operation), channel, _fields(operation), lambda _: None)

    def _make_queue(self, name: str, queue: QueueDeclare) -> None:
        channel = self._channel()
        if channel is None:
            return

        def named(result: Any) -> None:
            self.core.rename_queue(name, str(result["queue"]))

        def missing(error: ShardmqError) -> None:
            if isinstance(error, NotFound):
                self.failures.pop()
                self._step(f"a queue in place of '{name}'", QueueDeclare, channel, _fields(queue), named)

        if name not in self.core.declared.server_named:
            self._make(f"queue '{name}'", queue)
        elif queue.exclusive:
            self._step(f"a queue in place of '{name}'", QueueDeclare, channel, _fields(queue), named)
        else:  # it may have stayed
            passive = _fields(replace(queue, queue=name, passive=True))
            self._step(f"queue '{name}'", QueueDeclare, channel, passive, lambda _: None, missing)

    def _make_consumer(self, channel: ChannelCore, tag: str, consumer: BasicConsume) -> None:
        def failed(error: ShardmqError) -> None:
            self.core.end_consumer(channel, tag, error)

        self._step(f"consumer '{tag}'", BasicConsume, channel, _fields(consumer), lambda _: None, failed)

    def _channel(self) -> ChannelCore | None:
        return next((channel for channel in self.core.channels() if channel.is_open), self._own)

    def _step(
        self,
        what: str,
        kind: Callable[..., Operation],
        channel: ChannelCore,
        fields: tuple[Any, ...],
        done: Done,
        failed: Failed = lambda _: None,
    ) -> None:
        self._send(_Step(self, what, kind, channel, fields, done, failed))

    def _send(self, step: _Step) -> None:
        if step.channel.fault is not None:
            return  # closed meanwhile
        self._under_way += 1
        step.ask()


def _fields(operation: Operation) -> tuple[Any, ...]:
    """An operation's fields behind request and channel."""
    return tuple(getattr(operation, name) for name in operation.__struct_fields__[2:])


def _source(bound: QueueBind | ExchangeBind) -> str:
    return bound.exchange if isinstance(bound, QueueBind) else bound.source
