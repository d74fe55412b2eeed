"""The socket of an asyncio connection: feeds the core, sends what it says, beats, and comes back when it is lost."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Sequence
from typing import Any, Final, Protocol

from shardmq.client.api.defaults import (
    DIAL_SECONDS,
    REST_SECONDS,
    SILENT_BEATS,
    UNDELIVERED_BYTES_MAX,
    UNSENT_BYTES_MAX,
)
from shardmq.client.api.recovery import Backoff, Recovery
from shardmq.client.api.tls import context_for, hung_up, server_name, why
from shardmq.client.api.url import Address
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.errors import ConnectionFault, ConnectionLost, ProtocolError, ShardmqError, Timeout

_log = logging.getLogger("shardmq.client")

_BROKE: Final = "the connection to {} broke: {}"
_UNHEARD: Final = IgnoredReply()


class Flushable(Protocol):
    """Collects something to be sent, and says so with `Transport.due`."""

    def flush_due(self) -> None:
        """Send it."""


class _Line(asyncio.Protocol):
    """One socket. What comes over one that was given up is not heard."""

    def __init__(self, wire: "Transport") -> None:
        self._wire = wire
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 2)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self._wire.line is self:
            self._wire.heard(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._wire.line is self:
            self._wire.line_lost(exc)

    def pause_writing(self) -> None:
        self._wire.pause()

    def resume_writing(self) -> None:
        self._wire.resume()


class Transport:
    """See the module.

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
        self._addresses = addresses
        self._tls = tls
        self._backoff = Backoff(recovery, addresses) if recovery is not None else None
        self._timeout = timeout
        self._properties = properties
        self._peer = str(core.address)
        self._loop = asyncio.get_running_loop()
        self.line: _Line | None = None
        self._due: list[Flushable] = []
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._is_reading = True
        self._heard_at = self._sent_at = self._connected_at = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._pumping: asyncio.Handle | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    async def dial_first(self) -> None:
        """Connect to the first address that answers.

        Raises:
            ConnectionLost: none does.
        """
        for place, address in enumerate(self._addresses):
            is_last = place == len(self._addresses) - 1
            try:
                await self._dial(address, self._timeout if is_last else min(self._timeout, DIAL_SECONDS))
                return
            except ConnectionLost:
                if is_last:
                    raise

    # --- for the line -----------------------------------------------------------------------------------------------

    def heard(self, data: bytes) -> None:
        """Feed the core."""
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

    def line_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        closed = hung_up(self._peer, self._core.address, self._core.is_open)
        reason = closed if exc is None else _BROKE.format(self._peer, exc)
        self._lose(ConnectionLost(reason))

    def pause(self) -> None:
        """Much is unsent."""
        if self._room is None:
            self._room = self._loop.create_future()

    def resume(self) -> None:
        """It is not any more."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
        self._restore()

    # --- for channels and publishers ----------------------------------------------------------------------------------

    def transmit(self) -> None:
        """Send what the core has for the server."""
        frames = self._core.outgoing
        if not frames:
            return
        transport = self.line.transport if self.line is not None else None
        if transport is not None and not transport.is_closing():  # that it is lost, we hear in a moment
            transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
            self._sent_at = self._loop.time()
        frames.clear()  # where the connection is lost, what matters is said again by the core

    async def wait(self, awaited: Awaitable[Any], seconds: float, what: str) -> Any:
        """The result of what is awaited.

        Raises:
            Timeout: it did not come in so many seconds; it is given up.
        """
        self._waiting += 1
        self._set_reading()
        try:
            async with asyncio.timeout(seconds):
                return await awaited
        except TimeoutError:
            raise Timeout(f"{what}: no answer in {seconds:g} s{self._core.excuse()}") from None
        finally:
            self._waiting -= 1
            self._set_reading()

    async def make_room(self, seconds: float) -> None:
        """Wait while too much is unsent."""
        if self._room is not None:
            await self.wait(asyncio.shield(self._room), seconds, "sending (the server does not read)")

    def taken(self, size: int) -> None:
        """So many delivered bytes were taken by their consumer."""
        self._core.undelivered -= size
        if not self._is_reading:
            self._set_reading()

    def due(self, flushable: Flushable) -> None:
        """Have it flushed before the event loop waits again."""
        if not self._due:
            self._loop.call_soon(self._flush_due)
        self._due.append(flushable)

    def start_beating(self) -> None:
        """Send and expect signs of life, as the server agreed to."""
        self._beat = None
        interval = self._core.server.heartbeat
        if self._core.fault is not None or self.line is None:
            return
        now = self._loop.time()
        if not self._is_reading:
            self._heard_at = now  # it is we who do not listen
        silence = now - self._heard_at
        if not self._core.is_up and silence >= self._timeout:
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
        if interval or not self._core.is_up:
            pause = interval / 4 if interval else 1.0
            self._beat = self._loop.call_later(pause, self.start_beating)

    def stop(self) -> None:
        """Close the socket, at once, and try no other."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._drop_line(abort=True)
        self._end()

    # --- losing the line, and having another --------------------------------------------------------------------------

    def _lose(self, error: ShardmqError) -> None:
        recovers = self._core.break_off(error)
        self._drop_line(abort=recovers)
        if recovers and (self._reconnecting is None or self._reconnecting.done()):
            self._reconnecting = self._loop.create_task(self._reconnect())
        elif not recovers:
            self._end()

    def _drop_line(self, abort: bool) -> None:
        line, self.line = self.line, None
        for timer in (self._beat, self._rest, self._pumping):
            if timer is not None:
                timer.cancel()
        self._beat = self._rest = self._pumping = None
        self.resume()
        if line is not None and line.transport is not None:
            if abort:
                line.transport.abort()
            else:
                line.transport.close()

    def _end(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    async def _dial(self, address: Address, seconds: float) -> None:
        context = context_for(address, self._tls)
        name = server_name(address) if context is not None else None
        try:
            async with asyncio.timeout(seconds):
                _, line = await self._loop.create_connection(
                    lambda: _Line(self), address.host, address.port, ssl=context, server_hostname=name
                )
        except OSError as fault:  # TimeoutError is one
            raise ConnectionLost(f"no broker answers at {address}: {why(fault)}") from fault
        if self._backoff is not None:
            self._backoff.connected(address)
        self._core.address = address
        self._peer = str(address)
        self._is_reading = True
        self._heard_at = self._sent_at = self._connected_at = self._loop.time()
        self.line = line

    async def _reconnect(self) -> None:
        assert self._backoff is not None
        began = self._loop.time()
        self._backoff.lost(began, began - self._connected_at)
        while (planned := self._backoff.next(self._loop.time())) is not None:
            pause, address = planned
            await asyncio.sleep(pause)
            try:
                await self._dial(address, min(self._timeout, DIAL_SECONDS))
            except ConnectionLost as fault:
                _log.debug("recovery: %s", fault)
                continue
            if self._core.fault is None:
                self._reconnecting = None
                self._core.open(self._properties, _UNHEARD)
                self.transmit()
                self.start_beating()
            else:
                self._drop_line(abort=True)
            return
        self._core.lose(
            ConnectionLost(
                f"the connection to {self._peer} was lost, and the recovery given up after "
                f"{self._loop.time() - began:.0f} s{self._core.excuse()}"
            )
        )
        self._end()

    def _restore(self) -> None:
        """Send more of what was held; go on with what could not be restored a moment ago."""
        if self._core.is_holding and self._room is None and self._pumping is None:
            self._pumping = self._loop.call_soon(self._pump)
        if self._core.is_resting and self._rest is None:
            self._rest = self._loop.call_later(REST_SECONDS, self._rested)

    def _pump(self) -> None:
        self._pumping = None
        self._core.pump()
        self.transmit()
        self._restore()

    def _rested(self) -> None:
        self._rest = None
        self._core.rested()
        self.transmit()
        self._restore()

    def _flush_due(self) -> None:
        due, self._due = self._due, []
        for flushable in due:
            flushable.flush_due()

    def _set_reading(self) -> None:
        reading = self._waiting > 0 or self._core.undelivered <= UNDELIVERED_BYTES_MAX
        transport = self.line.transport if self.line is not None else None
        if reading != self._is_reading and transport is not None and not transport.is_closing():
            self._is_reading = reading
            if reading:
                transport.resume_reading()
            else:
                transport.pause_reading()
