"""The socket of a connection, over all its lives: feeds the core, sends its frames, and heartbeats."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from shardmq.client.aio.reconnect import Line, Reconnect
from shardmq.client.api.defaults import (
    RESTORE_PAUSE_SECONDS,
    SILENT_BEATS,
    UNDELIVERED_BYTES_MAX,
)
from shardmq.client.api.recovery import Recovery
from shardmq.client.api.tls import hung_up
from shardmq.client.api.url import Address
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.errors import ConnectionFault, ConnectionLost, ProtocolError, ShardmqError, Timeout

_log = logging.getLogger("shardmq.client")

T = TypeVar("T")

_UNHEARD: Final = IgnoredReply()


def has_result(answer: asyncio.Future[Any]) -> bool:
    """Whether a request was carried out: also for a task that was cancelled in the moment in which the answer came."""
    return answer.done() and not answer.cancelled() and answer.exception() is None


class Transport:
    """The socket of one connection, over all its lives.

    Args:
        core: the connection's.
        addresses: where to connect to, again and again if `recovery` says so.
        tls: the program's context.
        recovery: what to do when the connection is lost; None for nothing.
        timeout: seconds that a reconnect may take from its first byte to its last answer.
        properties: what the broker is told of this program.
    """

    def __init__(
        self,
        core: ConnectionCore,
        addresses: Sequence[Address],
        tls: ssl.SSLContext | None,
        recovery: Recovery | None,
        timeout: float,
        properties: dict[str, Any],
    ) -> None:
        self._core = core
        self._state = core.state
        self._reconnect = Reconnect(addresses, tls, recovery, timeout, self._make_line)
        self._timeout = timeout
        self._properties = properties
        self._peer = str(core.state.address)
        self._loop = asyncio.get_running_loop()
        self._line: Line | None = None
        self._due: list[Callable[[], None]] = []
        self._is_flushing = False
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._is_reading = True
        self._heard_at = self._sent_at = self._connected_at = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._pumping: asyncio.Handle | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    async def start(self, sign_seconds: float | None = None) -> None:
        """Connect to the first address that answers.

        Args:
            sign_seconds: in which the gateway has to show that it lives, before it is told anything; None for not.

        Raises:
            ConnectionLost: none does.
        """
        if sign_seconds is None:
            self._attach(*await self._reconnect.dial_first())
        else:
            self._attach(*await self._reconnect.dial_living(sign_seconds, self._core.SIGN))

    def _make_line(self) -> Line:
        return Line(self._heard, self._line_lost, self._paused)

    def _heard(self, line: Line, data: bytes) -> None:
        """Feed the core; what comes over a socket that was given up is ignored."""
        if line is not self._line:
            return
        self._heard_at = self._loop.time()
        try:
            self._core.receive(data)
        except ProtocolError as fault:
            self._core.accuse(fault)
            self.transmit()
            self._lose(fault)
        except ConnectionFault as fault:
            self._lose(fault)
        else:
            self.transmit()
            self._set_reading()
            self._restore()

    def _line_lost(self, line: Line, fault: Exception | None) -> None:
        if line is not self._line:
            return
        if fault is None or isinstance(fault, (ConnectionResetError, BrokenPipeError)):  # with something of ours unread
            said = hung_up(self._peer, self._state.address, self._state.is_open)
        else:
            said = f"the connection to {self._peer} broke: {fault}"
        self._lose(ConnectionLost(said))

    def _paused(self, _line: Line, is_paused: bool) -> None:
        if not is_paused:
            self._resume()
        elif self._room is None:
            self._room = self._loop.create_future()

    def _resume(self) -> None:
        """Wake those who wait until less is unsent."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
        self._restore()

    def transmit(self) -> None:
        """Send what the core has for the server."""
        frames = self._state.outgoing
        if not frames or self._is_flushing:
            return
        transport = self._line.transport if self._line is not None else None
        if transport is not None and not transport.is_closing():  # that it is lost, we hear in a moment
            transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
            self._sent_at = self._loop.time()
        frames.clear()  # where the connection is lost, what matters is said again by the core

    async def wait(self, answer: asyncio.Future[T], seconds: float, what: str, whole: float | None = None) -> T:
        """The answer's result. Where this raises, the answer may have come all the same: see `has_result`.

        Args:
            answer: it.
            seconds: to wait.
            what: was asked, in words, for the error.
            whole: the seconds that the error names, where a part of them has passed before.

        Raises:
            Timeout: it did not come in so many seconds; it is given up.
            ShardmqError: what the answer is.
        """
        self._waiting += 1
        self._set_reading()
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            if answer.done() and not answer.cancelled():  # it came in that moment
                return answer.result()
            raise Timeout(f"{what}: no answer in {whole or seconds:g} s{self._state.excuse()}") from None
        finally:
            self._waiting -= 1
            self._set_reading()

    async def make_room(self, seconds: float) -> None:
        """Wait while too much is unsent."""
        if self._room is not None:
            await self.wait(asyncio.shield(self._room), seconds, "sending (the server does not read)")

    def taken(self, channel: ChannelCore, size: int) -> None:
        """Count delivered bytes as taken by their consumer."""
        self._state.taken(channel, size)
        if not self._is_reading:
            self._set_reading()

    def due(self, flush: Callable[[], None]) -> None:
        """Have something flushed before the event loop waits again."""
        if not self._due:
            self._loop.call_soon(self._flush_due)
        self._due.append(flush)

    def start_beating(self) -> None:
        """Send heartbeats, and expect them, at the interval that the server agreed to."""
        self._beat = None
        interval = self._state.server.heartbeat
        if self._state.fault is not None or self._line is None:
            return
        now = self._loop.time()
        if not self._is_reading:
            self._heard_at = now  # it is we who do not listen
        silence = now - self._heard_at
        if not self._state.is_up and silence >= self._timeout:
            text = f"the broker at {self._peer} did not restore the connection in {self._timeout:g} s"
            self._lose(ConnectionLost(text))
            return
        if interval and silence >= interval * SILENT_BEATS:
            text = f"nothing heard from the broker at {self._peer} for {interval * SILENT_BEATS} s"
            self._lose(ConnectionLost(text))
            return
        if interval and now - self._sent_at >= interval / 2:
            self._core.heartbeat()
            self.transmit()
        if interval or not self._state.is_up:
            pause = interval / 4 if interval else 1.0
            self._beat = self._loop.call_later(pause, self.start_beating)

    def stop(self) -> None:
        """Close the socket, at once, and try no other."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._drop_line(abort=True)
        self._end()

    def _lose(self, error: ShardmqError) -> None:
        recovers = self._core.break_off(error)
        self._drop_line(abort=recovers)
        if recovers and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = self._loop.create_task(self._dial_again())
        elif not recovers:
            self._end()

    def _drop_line(self, abort: bool) -> None:
        line, self._line = self._line, None
        for timer in (self._beat, self._pause, self._pumping):
            if timer is not None:
                timer.cancel()
        self._beat = self._pause = self._pumping = None
        self._resume()
        if line is not None and line.transport is not None:
            if abort:
                line.transport.abort()
            else:
                line.transport.close()

    def _end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _attach(self, address: Address, line: Line) -> None:
        self._state.address = address
        self._peer = str(address)
        self._is_reading = True
        self._heard_at = self._sent_at = self._connected_at = self._loop.time()
        self._line = line

    async def _dial_again(self) -> None:
        try:
            await self._dial_and_open()
        except ConnectionLost as given_up:
            self._core.lose(ConnectionLost(f"{given_up.text}{self._state.excuse()}"))
            self._end()
        except BaseException as fault:  # else it would be recovered for ever
            self._core.lose(ConnectionLost(f"the recovery of the connection to {self._peer} ended by {fault!r}"))
            self._drop_line(abort=True)
            self._end()
            if not isinstance(fault, Exception):  # all tasks are cancelled, or the program ends
                raise
            _log.exception("the recovery of the connection to %s ended by an error in this library", self._peer)

    async def _dial_and_open(self) -> None:
        address, line = await self._reconnect.dial_again(self._peer, self._loop.time() - self._connected_at)
        self._attach(address, line)
        if self._state.fault is None:
            self._reconnecting = None
            self._core.open(self._properties, _UNHEARD)
            self.transmit()
            self.start_beating()
        else:
            self._drop_line(abort=True)

    def _restore(self) -> None:
        """Send more of what was held; go on with what could not be restored a moment ago."""
        if self._state.is_holding and self._room is None and self._pumping is None:
            self._pumping = self._loop.call_soon(self._pump)
        if self._core.is_pausing and self._pause is None:
            self._pause = self._loop.call_later(RESTORE_PAUSE_SECONDS, self._go_on)

    def _pump(self) -> None:
        self._pumping = None
        self._state.pump()
        self.transmit()
        self._restore()

    def _go_on(self) -> None:
        self._pause = None
        self._core.go_on()
        self.transmit()
        self._restore()

    def _flush_due(self) -> None:
        due, self._due = self._due, []
        self._is_flushing = True  # what all channels have to send is written together: a system call for each is dear
        try:
            for flush in due:
                flush()
        finally:
            self._is_flushing = False
            self.transmit()

    def _set_reading(self) -> None:
        reading = self._waiting > 0 or self._state.undelivered <= UNDELIVERED_BYTES_MAX
        transport = self._line.transport if self._line is not None else None
        if reading != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = reading
            if reading:
                transport.resume_reading()
            else:
                transport.pause_reading()
