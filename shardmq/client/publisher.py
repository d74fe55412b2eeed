"""Pipelined publishing: messages are sent in runs without waiting, and confirmed behind the program's back.

A message goes out at once while few runs are unconfirmed. Past that, what is published meanwhile waits for the next
confirm, a full run or the I/O thread's tick, and shares a run with its neighbours: batching emerges from load.
"""

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Self

from shardmq.client.arguments import check_names
from shardmq.client.core import ChannelCore, Core
from shardmq.client.io_thread import IoThread
from shardmq.client.runs import Filling, flags_of, record_of, runs_of
from shardmq.client.waiting import Answer
from shardmq.errors import ChannelError, InvalidRequest, ShardmqError
from shardmq.records import Properties

EAGER_RUNS: Final = 8
"""With fewer runs unconfirmed than this, a message is sent at once, alone."""

WINDOW: Final = 10_000
"""Messages unconfirmed before a publisher waits."""


def refusal(count: int, first: ShardmqError) -> ShardmqError:
    """What a flush raises: the first message's error, and how many there were."""
    if count == 1:
        return type(first)(first.text, first.code)
    return type(first)(f"{count} messages were refused; the first: {first.text}", first.code)


class Publisher:
    """Made by `Channel.publisher`. Safe from several threads; each thread's messages keep their order.

    A context manager: leaving it flushes, and raises what was refused.
    """

    def __init__(self, core: Core, io: IoThread, channel: ChannelCore, window: int, timeout: float,
                 forget: Callable[["Publisher"], None]) -> None:  # fmt: skip
        if window < 1:
            raise InvalidRequest(f"a publisher's window is at least 1 message, not {window}")
        self._core = core
        self._io = io
        self._channel = channel
        self._window = window
        self._timeout = timeout
        self._forget = forget
        self._lock = threading.Lock()
        self._filling = Filling()
        self._published = 0  # under _lock
        self._runs_sent = 0  # under io.lock, as the next four
        self._runs_settled = 0
        self._settled = 0
        self._refused = 0
        self._error: ShardmqError | None = None
        self._waiters: list[tuple[int, Answer]] = []  # (wanted of _settled, who wants it)
        self._is_due = False
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._is_closed = True
            self._forget(self)
            self.send()

    @property
    def unconfirmed(self) -> int:
        """Messages published and not yet confirmed or refused."""
        return self._published - self._settled

    def publish(self, exchange: str, routing_key: str, body: bytes, properties: Properties | None = None) -> None:
        """Publish one message; waits only while the window is full.

        Args:
            exchange: where to, "" for the default exchange.
            routing_key: what the exchange's bindings are matched with.
            body: the message.
            properties: of the message; persistent unless their delivery_mode is 1.

        Raises:
            TypeError: the body is not bytes.
            ContentTooLarge: over the message limit; nothing was sent.
            Timeout: the window stayed full; the message was not taken.
            ChannelError, ConnectionFault: the channel or the connection is closed.
        """
        record = record_of(body, properties)
        flags = 1 if properties is None else flags_of(properties)
        if self._published - self._settled >= self._window:
            self._wait_for_window()
        with self._lock:
            filling = self._filling
            if filling.routing_key != routing_key or filling.exchange != exchange or filling.flags != flags:
                self._send_filling()
                filling.begin(exchange, routing_key, flags)
            self._published += 1
            if filling.add(record) or self._runs_sent - self._runs_settled < EAGER_RUNS:
                self._send_filling()
            elif not self._is_due:
                self._is_due = True
                self._io.due(self)
        if self._is_closed or self._channel.fault is not None:
            self._check()
        self._io.make_room(self._timeout)

    def publish_many(
        self, exchange: str, routing_key: str, bodies: Iterable[bytes], properties: Properties | None = None
    ) -> None:
        """Publish many messages that share exchange, routing key and properties: a few hundred to a run.

        Args:
            exchange: where to.
            routing_key: for all of them.
            bodies: the messages, in any iterable; taken a run at a time.
            properties: of all of them.

        Raises:
            As `publish`; the runs before the one at fault were sent.
        """
        check_names(exchange=exchange, routing_key=routing_key)
        flags = flags_of(properties)
        for count, records in runs_of(bodies, properties):
            if self._published - self._settled >= self._window:
                self._wait_for_window()
            with self._lock:
                self._send_filling()
                self._check()
                self._published += count
                self._send_run(exchange, routing_key, flags, count, records)
            self._io.make_room(self._timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything and wait until all of it is confirmed.

        Args:
            timeout: seconds to wait; the connection's when None.

        Raises:
            NotFound, AccessRefused, PublishRefused, …: messages were refused since the last flush; the text says how
                many, and the first one's reason.
            Timeout: not all was confirmed in time; it may still be.
            ChannelError, ConnectionFault: the channel or connection closed before all was confirmed.
        """
        self.send()
        self._wait_for(self._published, self._timeout if timeout is None else timeout, "flush")
        with self._io.lock:
            error, refused = self._error, self._refused
            self._error, self._refused = None, 0
        if error is not None:
            raise refusal(refused, error) from error

    def close(self) -> None:
        """Flush, and publish no more. Raises as `flush`."""
        self._is_closed = True
        self._forget(self)
        if self.unconfirmed or self._error is not None:
            self.flush()

    def send(self) -> None:
        """Send what is being collected, without waiting for it to be confirmed."""
        with self._lock:
            self._send_filling()

    def flush_due(self) -> None:
        """As `send`, for the I/O thread."""
        with self._lock:
            self._is_due = False
            self._send_filling()

    def settled(self, count: int, error: ShardmqError | None) -> None:
        """Count the confirm of a run. Called by the core, under `io.lock`."""
        self._runs_settled += 1
        self._settled += count
        if error is not None:
            self._refused += count
            self._error = self._error or error
        if self._waiters:
            for wanted, answer in self._waiters:
                if wanted <= self._settled:
                    answer.set_result(None)
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > self._settled]

    def _send_filling(self) -> None:
        filling = self._filling
        if filling.size:
            count, records = filling.take()
            self._send_run(filling.exchange, filling.routing_key, filling.flags, count, records)

    def _send_run(self, exchange: str, routing_key: str, flags: int, count: int, records: bytes) -> None:
        with self._io.lock:
            self._runs_sent += 1
            fault = self._core.fault or self._channel.fault
            if fault is not None:
                self.settled(count, fault)
                return
            self._core.publish(self._channel, exchange, routing_key, flags, count, records, self)
            self._io.transmit()

    def _wait_for_window(self) -> None:
        self.send()
        self._check()
        what = f"room in the window of {self._window} messages"
        self._wait_for(self._published - self._window // 2, self._timeout, what)

    def _wait_for(self, wanted: int, seconds: float, what: str) -> None:
        with self._io.lock:
            if wanted <= self._settled:
                return
            answer = Answer()
            self._waiters.append((wanted, answer))
        self._io.wait(answer, seconds, what)

    def _check(self) -> None:
        with self._io.lock:
            self._core.check(self._channel)
        if self._is_closed:
            raise ChannelError("this publisher is closed")
