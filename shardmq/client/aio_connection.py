"""A connection to the broker, for asyncio programs. Everything on it belongs to the event loop it was made on."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

from shardmq.client.aio_channel import Channel
from shardmq.client.connection import CLOSE_SECONDS, check_heartbeat, client_properties
from shardmq.client.core import Core
from shardmq.client.io_thread import SILENT_BEATS, UNDELIVERED_BYTES_MAX, UNSENT_BYTES_MAX
from shardmq.client.url import Address, parse
from shardmq.client.waiting import TIMEOUT_SECONDS
from shardmq.errors import ConnectionFault, ConnectionLost, ProtocolError, ShardmqError, Timeout
from shardmq.limits import HEARTBEAT_SECONDS

_BROKE: Final = "the connection to {} broke: {}"


class Flushable(Protocol):
    """Collects something to be sent, and says so with `Wire.due`."""

    def flush_due(self) -> None:
        """Send it."""


class Wire(asyncio.Protocol):
    """The socket's side: feeds the core, sends what it has to say, beats, and bounds what is held either way."""

    def __init__(self, core: Core, peer: str) -> None:
        self._core = core
        self._peer = peer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._due: list[Flushable] = []
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._is_reading = True
        self._heard_at = self._sent_at = self._loop.time()
        self._beat: asyncio.TimerHandle | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # --- asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Take the socket."""
        self._transport = transport
        transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX, low=UNSENT_BYTES_MAX // 2)

    def data_received(self, data: bytes) -> None:
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

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        reason = f"the broker at {self._peer} closed the connection" if exc is None else _BROKE.format(self._peer, exc)
        self._lose(ConnectionLost(reason))
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        """Much is unsent."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """It is not any more."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # --- for channels and publishers ----------------------------------------------------------------------------------

    def transmit(self) -> None:
        """Send what the core has for the server."""
        frames = self._core.outgoing
        if frames:
            self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
            frames.clear()
            self._sent_at = self._loop.time()

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
            raise Timeout(f"{what}: no answer in {seconds:g} s") from None
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
        interval = self._core.server.heartbeat
        if not interval or self._core.fault is not None:
            return
        now = self._loop.time()
        if not self._is_reading:
            self._heard_at = now  # it is we who do not listen
        if now - self._heard_at >= interval * SILENT_BEATS:
            silence = f"nothing heard from the broker at {self._peer} for {interval * SILENT_BEATS} s"
            self._lose(ConnectionLost(silence))
            return
        if now - self._sent_at >= interval / 2:
            self._core.heartbeat()
            self.transmit()
        self._beat = self._loop.call_later(interval / 4, self.start_beating)

    def abort(self) -> None:
        """Close the socket, at once."""
        if self._beat is not None:
            self._beat.cancel()
        self._transport.abort()

    def _flush_due(self) -> None:
        due, self._due = self._due, []
        for flushable in due:
            flushable.flush_due()

    def _lose(self, error: ShardmqError) -> None:
        self._core.lose(error)
        if self._beat is not None:
            self._beat.cancel()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._transport.close()

    def _set_reading(self) -> None:
        reading = self._waiting > 0 or self._core.undelivered <= UNDELIVERED_BYTES_MAX
        if reading != self._is_reading and not self._transport.is_closing():
            self._is_reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()


async def connect(
    url: str = "shardmq://guest:guest@127.0.0.1:5672/",
    timeout: float = TIMEOUT_SECONDS,
    heartbeat: int = HEARTBEAT_SECONDS,
) -> "Connection":
    """Connect to a broker. Takes and raises what `shardmq.connect` does."""
    address = parse(url)
    check_heartbeat(heartbeat)
    core = Core(address, heartbeat)
    try:
        async with asyncio.timeout(timeout):
            _, wire = await asyncio.get_running_loop().create_connection(
                lambda: Wire(core, str(address)), address.host, address.port
            )
    except OSError as fault:  # TimeoutError is one
        why = fault.strerror or str(fault) or "no answer in time"
        raise ConnectionLost(f"no broker answers at {address}: {why}") from fault
    connection = Connection(core, wire, address, timeout)
    try:
        await connection._open()
    except BaseException:
        wire.abort()
        raise
    return connection


class Connection:
    """An open connection. Made by `connect`. An async context manager: leaving it closes the connection."""

    def __init__(self, core: Core, wire: Wire, address: Address, timeout: float) -> None:
        self.timeout = timeout
        """Seconds each answer is waited for."""
        self._core = core
        self._wire = wire
        self._address = address
        self._channels: set[Channel] = set()
        self._own_channel: Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<aio Connection to {self._address}, {'open' if self.is_open else 'closed'}>"

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._core.fault is None

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the broker said of itself."""
        server = self._core.server
        return {name: getattr(server, name) for name in server.__struct_fields__}

    async def channel(self) -> Channel:
        """Open a channel. Raises what `shardmq.Connection.channel` does."""
        forget: Callable[[Channel], None] = self._channels.discard
        channel = Channel(self._core, self._wire, self.timeout, forget)
        self._channels.add(channel)
        await channel.open()
        return channel

    async def status(self) -> dict[str, Any]:
        """The state of every process and queue, as `shardmq status` shows it."""
        status: dict[str, Any] = await (await self._channel_for_questions()).status()
        return status

    async def topology(self, noun: str) -> list[dict[str, Any]]:
        """What there is in this virtual host, a table for each: "exchanges", "queues" or "bindings"."""
        tables: list[dict[str, Any]] = await (await self._channel_for_questions()).topology(noun)
        return tables

    async def close(self) -> None:
        """Close it, with all its channels; what is unacked returns to its queues. Always returns, within seconds."""
        if self.is_open:
            for channel in list(self._channels):
                channel.flush()
            self._core.close(ConnectionLost(f"the connection to {self._address} was closed by this program"))
            self._wire.transmit()
        try:
            async with asyncio.timeout(min(CLOSE_SECONDS, self.timeout)):
                await asyncio.shield(self._wire.closed)
        except TimeoutError:
            self._wire.abort()
            await self._wire.closed

    async def _open(self) -> None:
        opened = asyncio.get_running_loop().create_future()
        self._core.open(client_properties(), opened)
        self._wire.transmit()
        await self._wire.wait(opened, self.timeout, f"opening the connection to {self._address}")
        self._wire.start_beating()

    async def _channel_for_questions(self) -> Channel:
        if self._own_channel is None or not self._own_channel.is_open:
            self._own_channel = await self.channel()
        return self._own_channel
