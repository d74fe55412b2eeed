"""After a reconnect: channels, exchanges, queues, bindings and consumers are made again, in that order. No I/O.

A stage's requests are sent together; the next begins when all are answered. What cannot be made is noted and left;
what may be possible soon (the lost connection still has an exclusive queue, a shard is being restarted) is asked again.
An exclusive consumer that another connection has is asked for behind all else, while the connection is used: that may
be the lost one, or a program that has taken over and stays.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from msgspec.structs import replace

from shardmq.client.api.results import QueueDeclared, result_of
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.declarations import Declarations
from shardmq.client.core.interfaces import Reply
from shardmq.errors import AccessRefused, NotFound, ResourceLocked, ShardmqError, Unavailable
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen
from shardmq.protocol.native.operations.fields import ClientRequest
from shardmq.protocol.native.operations.topology import ExchangeBind, QueueBind, QueueDeclare

PAUSES_MAX: Final = 60
"""Half a minute: a lost gateway's exclusive queues and consumers are gone after ten seconds, a shard is restarted in
fewer."""

OFFSET: Final = "x-stream-offset"
"""The argument that says where a consumer begins to read."""

Done = Callable[[object], None]
Failed = Callable[[ShardmqError], None]


class Restorable(Protocol):
    """What a restoration needs of the connection."""

    declarations: Declarations

    def channels(self) -> list[ChannelCore]:
        """The channels that are to be there."""

    def new_channel(self) -> ChannelCore:
        """A channel with the next free number, not asked for yet."""

    def free(self, channel: ChannelCore) -> None:
        """Let the channel's number be given to another."""

    def drop_unwanted(self) -> None:
        """Forget the channels that are not asked for yet, and that nobody waits for any more."""

    def close_late(self, channel: ChannelCore) -> None:
        """Close a channel that was opened when nobody waited for it any more."""

    def end_channel(self, channel: ChannelCore, error: ShardmqError) -> None:
        """Close a channel, and tell everybody who waits on it."""

    def end_consumer(self, channel: ChannelCore, tag: str, error: ShardmqError | None) -> None:
        """End a consumer, and tell its inbox."""

    def ask_at_once(self, operation: ClientRequest, channel: ChannelCore, reply: Reply[object]) -> None:
        """Send a request before everything that is held."""

    def rename_queue(self, old: str, new: str) -> None:
        """Note that a queue the server named has another name now."""

    def restored(self, failures: list[str], late: "LateConsumers | None") -> None:
        """Go on with what was held: everything that can be is as it was, but for consumers that may still be had."""


class _Step:
    """The reply to one request, which is asked again where that may help."""

    __slots__ = ("_done", "_failed", "_inbox", "_operation", "_what", "asking", "channel")

    def __init__(
        self,
        asking: "_Asking",
        what: str,
        operation: ClientRequest,
        channel: ChannelCore,
        done: Done,
        failed: Failed,
    ) -> None:
        self.asking = asking
        self._what = what
        self._operation = operation
        self.channel = channel
        self._inbox = channel.inboxes.get(operation.consumer) if isinstance(operation, BasicConsume) else None
        self._done = done
        self._failed = failed

    def done(self) -> bool:
        return self.asking.is_over

    def ask(self) -> None:
        self.asking.connection.ask_at_once(self._operation, self.channel, self)

    def set_result(self, result: object, /) -> None:
        self._done(result)
        self.asking.answered()

    def set_exception(self, error: ShardmqError, /) -> None:
        asking = self.asking
        if self._is_had_by_another(error) and asking.may_pause():
            asking.leave_to_another(self)
        elif isinstance(error, ResourceLocked | Unavailable) and asking.may_pause():
            asking.later.append(self)
        elif not self._went_with_channel(error):
            asking.failures.append(f"{self._what}: {error}")
            self._failed(error)
        asking.answered()

    @property
    def is_wanted(self) -> bool:
        """Whether it is still to be asked: the program may have closed its channel, or cancelled its consumer."""
        if self.channel.fault is not None:
            return False
        operation = self._operation
        return not isinstance(operation, BasicConsume) or self.channel.inboxes.get(operation.consumer) is self._inbox

    def _is_had_by_another(self, error: ShardmqError) -> bool:
        """Whether it is an exclusive consumer that another connection has, as far as that can be told."""
        is_exclusive = isinstance(self._operation, BasicConsume) and self._operation.exclusive
        return is_exclusive and isinstance(error, AccessRefused)

    def _went_with_channel(self, error: ShardmqError) -> bool:
        """Whether the program does not want it any more: it has closed the channel."""
        is_closed_here = self.channel.fault is not None and not error.is_from_broker
        return is_closed_here and isinstance(self._operation, ChannelOpen | BasicConsume)


class _Asking:
    """Requests that are asked again, after pauses, where that may help.

    Attributes:
        connection: on which they are asked.
        later: steps to be asked again after a pause.
        failures: a sentence for each thing that could not be made.
        is_over: it is done, or the connection was lost again.
    """

    def __init__(self, connection: Restorable) -> None:
        self.connection = connection
        self.later: list[_Step] = []
        self.failures: list[str] = []
        self.is_over = False
        self._pauses = 0
        self._under_way = 0

    @property
    def is_pausing(self) -> bool:
        """Whether `go_on` is to be called after RESTORE_PAUSE_SECONDS."""
        return not self.is_over and not self._under_way and bool(self.later)

    def may_pause(self) -> bool:
        """Whether trying again later is still worth it."""
        return self._pauses < PAUSES_MAX

    def leave_to_another(self, step: _Step) -> None:
        """Go on without an exclusive consumer, for now."""
        self.later.append(step)

    def answered(self) -> None:
        """Count the answer of a step."""
        self._under_way -= 1

    def go_on(self) -> None:
        """Try again, after a pause, what failed."""
        self._pauses += 1
        steps, self.later = self.later, []
        for step in steps:
            self._send(step)

    def _send(self, step: _Step) -> None:
        if step.is_wanted:
            self._under_way += 1
            step.ask()


class LateConsumers(_Asking):
    """Exclusive consumers that another connection has, asked for while the connection is used.

    Args:
        connection: whose they are.
        steps: which ask for them.
    """

    def __init__(self, connection: Restorable, steps: list[_Step]) -> None:
        super().__init__(connection)
        self.later = steps
        for step in steps:
            step.asking = self


class Restore(_Asking):
    """One restoration, from the connection's Ok to its end; channels, declarations and consumers are made again."""

    def __init__(self, connection: Restorable) -> None:
        super().__init__(connection)
        self._had_by_others: list[_Step] = []
        self._own: ChannelCore | None = None  # to declare on, where the program has no channel
        self._stages = self._plan()

    def begin(self) -> None:
        """Begin with the first stage: the connection is open."""
        self._next_stage()

    def abandon(self) -> None:
        """Ask for nothing more: the connection was lost again."""
        self.is_over = True
        if self._own is not None:
            self.connection.free(self._own)

    def leave_to_another(self, step: _Step) -> None:
        """Have an exclusive consumer hold up nothing else."""
        self._had_by_others.append(step)

    def go_on(self) -> None:
        """Try again, after a pause, what failed."""
        super().go_on()
        if not self._under_way:  # none of them is wanted any more
            self._next_stage()

    def answered(self) -> None:
        """Count the answer of a step; behind the last one of a stage the next stage begins."""
        super().answered()
        if not self._under_way and not self.later:
            self._next_stage()

    def _next_stage(self) -> None:
        for _ in self._stages:
            if self._under_way or self.later:
                return
        self.is_over = True
        others = self._had_by_others
        self.connection.restored(self.failures, LateConsumers(self.connection, others) if others else None)

    def _plan(self) -> Iterator[None]:
        connection, declarations = self.connection, self.connection.declarations
        while channels := self._unopened():
            for channel in channels:
                self._open(channel)
            yield
        if not connection.channels() and not declarations.is_empty:
            self._own = connection.new_channel()
            self._open(self._own)
            yield
        for exchange in list(declarations.exchanges.values()):
            self._make(f"exchange '{exchange.exchange}'", exchange)
        yield
        for name, queue in list(declarations.queues.items()):
            self._make_queue(name, queue)
        yield
        for binding in list(declarations.bindings.values()):
            self._make(f"a binding of '{_source(binding)}'", binding)
        yield
        for channel in connection.channels():
            for tag, consumer in list(channel.consumers.items()):
                self._make_consumer(channel, tag, consumer)
        yield
        if self._own is not None:
            self._step("a channel", ChannelClose(0, 0), self._own)
            connection.free(self._own)
            yield
        while channels := self._unopened():  # the program wanted them meanwhile
            for channel in channels:
                self._open(channel)
            yield

    def _unopened(self) -> list[ChannelCore]:
        self.connection.drop_unwanted()
        return [channel for channel in self.connection.channels() if not channel.is_open]

    def _open(self, channel: ChannelCore) -> None:
        def opened(_: object) -> None:
            channel.is_open = True
            opening, channel.opening = channel.opening, None
            if opening is None:
                return
            if opening.done():
                self.connection.close_late(channel)
            else:
                opening.set_result(None)

        def failed(error: ShardmqError) -> None:
            self.connection.end_channel(channel, error)
            self.connection.free(channel)

        self._step(f"channel {channel.number}", ChannelOpen(0, 0), channel, opened, failed)

    def _make(self, what: str, operation: ClientRequest) -> None:
        channel = self._channel()
        if channel is not None:
            self._step(what, operation, channel)

    def _make_queue(self, name: str, queue: QueueDeclare) -> None:
        channel = self._channel()
        if channel is None:
            return

        def named(result: object) -> None:
            self.connection.rename_queue(name, result_of(QueueDeclared, result).queue)

        def missing(error: ShardmqError) -> None:
            if isinstance(error, NotFound):
                self.failures.pop()
                self._step(f"a queue in place of '{name}'", queue, channel, named)

        if name not in self.connection.declarations.server_named:
            self._make(f"queue '{name}'", queue)
        elif queue.exclusive:
            self._step(f"a queue in place of '{name}'", queue, channel, named)
        else:  # it may have stayed
            passive = replace(queue, queue=name, passive=True)
            self._step(f"queue '{name}'", passive, channel, failed=missing)

    def _make_consumer(self, channel: ChannelCore, tag: str, consumer: BasicConsume) -> None:
        inbox = channel.inboxes.get(tag)

        def failed(error: ShardmqError) -> None:
            if channel.inboxes.get(tag) is inbox:  # else the program has begun another one of that name
                self.connection.end_consumer(channel, tag, error)

        self._step(f"consumer '{tag}'", consumer, channel, failed=failed)

    def _channel(self) -> ChannelCore | None:
        return next((channel for channel in self.connection.channels() if channel.is_open), self._own)

    def _step(
        self,
        what: str,
        operation: ClientRequest,
        channel: ChannelCore,
        done: Done = lambda _: None,
        failed: Failed = lambda _: None,
    ) -> None:
        self._send(_Step(self, what, operation, channel, done, failed))


def _source(binding: QueueBind | ExchangeBind) -> str:
    return binding.exchange if isinstance(binding, QueueBind) else binding.source


def started_at(operation: BasicConsume, result: object) -> BasicConsume:
    """Return a consumer as it is started again, where nothing was delivered to it meanwhile.

    Args:
        operation: that started it.
        result: the answer: with an offset, where it is a stream that is read.
    """
    offset = result.get("offset") if isinstance(result, dict) else None
    return operation if offset is None else reading_on(operation, offset)


def reading_on(operation: BasicConsume, offset: int) -> BasicConsume:
    """Return a consumer of a stream as it is started again, to read on from an offset."""
    return replace(operation, arguments={**operation.arguments, OFFSET: offset})
