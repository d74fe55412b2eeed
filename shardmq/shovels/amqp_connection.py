"""A client's connection over AMQP 0-9-1, with one channel at a time."""

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Final, Self, TypeVar

from shardmq.client.api.tls import context_for, hung_up, server_name, why
from shardmq.client.api.url import Address
from shardmq.errors import AuthenticationFailed, ConnectionLost, RequestError, ShardmqError, Timeout, request_error
from shardmq.protocol.amqp.events import BODY, END, FRAME_OVERHEAD, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER
from shardmq.protocol.amqp.methods import codec
from shardmq.protocol.amqp.methods.basic import BasicCancel, BasicDeliver, BasicPublish, BasicReturn
from shardmq.protocol.amqp.methods.connection import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
)
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.version import VERSION

TIMEOUT_SECONDS: Final = 15.0
"""For a connection and each answer."""

HEARTBEAT_SECONDS: Final = 20
FRAME_MAX: Final = 131_072

BUFFER_BYTES: Final = 1 << 20
"""Sent bytes beyond which publishing waits for the socket."""

CAPABILITIES: Final = {
    "basic.nack": True,
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
}

_FRAME: Final = struct.Struct(">BHI")
_CONTENT: Final = struct.Struct(">HHQ")
_END: Final = bytes((END,))
_BASIC: Final = 60

Answered = TypeVar("Answered", bound=Method)
Told = Callable[[Method, bytes, bytes], None]
"""Called with a method that is no answer, the property list and the body of its content; both empty without one."""


class AmqpConnection:
    """A connection, of which everything belongs to the event loop it was opened on.

    Args:
        address: of the broker.
        told: called with deliveries, returns and confirms.

    Attributes:
        fault: why it is over; None while it is open.
        room: is set while what comes may be read.
    """

    def __init__(self, address: Address, told: Told) -> None:
        self.fault: ShardmqError | None = None
        self.room = asyncio.Event()
        self.room.set()
        self._address = address
        self._told = told
        self._channel = 0
        self._frame_max = FRAME_MAX
        self._heartbeat = 0
        self._waiting: asyncio.Future[Method] | None = None
        self._content: tuple[Method, bytes, int, list[bytes]] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._on_fault: list[Callable[[], None]] = []
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, address: Address, told: Told) -> Self:
        """Connect, log in, and open a channel.

        Raises:
            ConnectionLost: nobody answers there, or the broker hung up.
            AuthenticationFailed: the broker refuses user, password or virtual host.
        """
        connection = cls(address, told)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await connection._open()
        except TimeoutError:
            await connection.close()
            raise ConnectionLost(f"{address} did not answer in {TIMEOUT_SECONDS:.0f} s") from None
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _open(self) -> None:
        address = self._address
        context = context_for(address, None)
        name = None if context is None else server_name(address)
        try:
            self._reader, self._writer = await asyncio.open_connection(
                address.host, address.port, ssl=context, server_hostname=name
            )
        except OSError as fault:
            raise ConnectionLost(f"cannot connect to {address}: {why(fault)}") from fault
        self._writer.write(PROTOCOL_HEADER)
        self._tasks.append(asyncio.create_task(self._read()))
        try:
            await self._answer(ConnectionStart)
        except ConnectionLost as lost:
            raise ConnectionLost(hung_up(str(address), address, is_open=False)) from lost
        try:
            await self._log_in(address)
        except ConnectionLost as lost:
            text = f"{address} refused user '{address.user}' or virtual host '{address.vhost}': {lost.text}"
            raise AuthenticationFailed(text) from lost
        if self._heartbeat:
            self._tasks.append(asyncio.create_task(self._beat()))
        await self.open_channel()

    async def _log_in(self, address: Address) -> None:
        properties = {"product": "shardmq", "version": VERSION, "capabilities": CAPABILITIES}
        mechanism, response = "PLAIN", f"\0{address.user}\0{address.password}".encode()
        if not address.user:
            mechanism, response = "EXTERNAL", b""
        self._send(ConnectionStartOk(properties, mechanism, response, "en_US"), channel=0)
        tune = await self._answer(ConnectionTune)
        self._frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self._heartbeat = min(tune.heartbeat, HEARTBEAT_SECONDS)
        self._send(ConnectionTuneOk(tune.channel_max, self._frame_max, self._heartbeat), channel=0)
        self._send(ConnectionOpen(address.vhost), channel=0)
        await self._answer(ConnectionOpenOk)

    async def open_channel(self) -> None:
        """Open another channel, which is used from now on."""
        self._channel += 1
        await self.call(ChannelOpen(), ChannelOpenOk)

    async def call(self, method: Method, answer: type[Answered]) -> Answered:
        """Ask, and wait for the answer.

        Raises:
            RequestError: the broker refused, and has closed the channel; open another one.
            Timeout: no answer in time.
            ConnectionLost: the connection is over.
        """
        self._send(method)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                return await self._answer(answer)
        except TimeoutError:
            raise Timeout(f"{self._address} did not answer {method.name} in {TIMEOUT_SECONDS:.0f} s") from None

    async def _answer(self, kind: type[Answered]) -> Answered:
        self.check()
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            method = await self._waiting
        finally:
            self._waiting = None
        if not isinstance(method, kind):
            raise ConnectionLost(f"{self._address} answered {method.name} where {kind.__name__} was expected")
        return method

    def send(self, method: Method) -> None:
        """Send a method that is not answered.

        Raises:
            ShardmqError: the connection is over.
        """
        self.check()
        self._send(method)

    def publish(self, exchange: str, routing_key: str, is_mandatory: bool, raw: bytes, body: bytes) -> None:
        """Send a message.

        Raises:
            ShardmqError: the connection is over.
        """
        self.check()
        channel, most = self._channel, self._frame_max - FRAME_OVERHEAD
        parts = [
            _frame(METHOD, channel, codec.encode(BasicPublish(0, exchange, routing_key, is_mandatory))),
            _frame(HEADER, channel, _CONTENT.pack(_BASIC, 0, len(body)) + raw),
        ]
        parts += [_frame(BODY, channel, body[at : at + most]) for at in range(0, len(body), most)]
        self._writer.write(b"".join(parts))

    @property
    def is_full(self) -> bool:
        """Whether the socket is behind."""
        return self._writer.transport.get_write_buffer_size() > BUFFER_BYTES

    async def drain(self) -> None:
        """Wait for the socket."""
        try:
            await self._writer.drain()
        except OSError as fault:
            raise self.fault or ConnectionLost(f"the connection to {self._address} is lost: {fault}") from fault

    def check(self) -> None:
        """Make sure that the connection is open.

        Raises:
            ShardmqError: why it is not.
        """
        if self.fault is not None:
            raise self.fault

    def on_fault(self, call: Callable[[], None]) -> None:
        """Have `call` made when the connection is over."""
        self._on_fault.append(call)

    async def close(self) -> None:
        """Close it; what was sent before is carried out."""
        if self.fault is None and self._channel:
            with contextlib.suppress(ShardmqError, TimeoutError):  # it ends in any case
                self._send(ConnectionClose(200, "done", 0, 0), channel=0)
                async with asyncio.timeout(TIMEOUT_SECONDS / 3):
                    await self._answer(ConnectionCloseOk)
        self.fail(ConnectionLost(f"the connection to {self._address} was closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if hasattr(self, "_writer"):
            self._writer.transport.abort()

    def fail(self, fault: ShardmqError) -> None:
        """End the connection; whoever waits is told why."""
        if self.fault is None:
            self.fault = fault
            self.room.set()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_exception(fault)
            for call in self._on_fault:
                call()

    def _send(self, method: Method, channel: int | None = None) -> None:
        number = self._channel if channel is None else channel
        self._writer.write(_frame(METHOD, number, codec.encode(method)))

    async def _beat(self) -> None:
        while self.fault is None:
            await asyncio.sleep(self._heartbeat / 2)
            self._writer.write(_frame(HEARTBEAT, 0, b""))

    async def _read(self) -> None:
        """Read frames until the connection is over; a task of its own."""
        try:
            while self.fault is None:
                await self.room.wait()
                async with asyncio.timeout(2.5 * self._heartbeat or None):
                    kind, channel, size = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                    if size > 2 * FRAME_MAX:
                        raise ConnectionLost(f"{self._address} does not speak AMQP 0-9-1")
                    payload = (await self._reader.readexactly(size + 1))[:-1]
                self._take(kind, channel, payload)
        except TimeoutError:
            self.fail(ConnectionLost(f"{self._address} was silent for {2.5 * self._heartbeat:.0f} s"))
        except (OSError, EOFError) as fault:
            self.fail(ConnectionLost(f"{self._address} closed the connection: {fault}"))
        except ShardmqError as fault:
            self.fail(fault)

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            self._on_method(codec.decode(payload, channel), channel)
        elif kind == HEADER and self._content is not None:
            size = _CONTENT.unpack_from(payload)[2]
            self._content = self._content[0], payload[_CONTENT.size :], size, []
            self._end_content()
        elif kind == BODY and self._content is not None:
            self._content[3].append(payload)
            self._end_content()

    def _end_content(self) -> None:
        assert self._content is not None
        method, raw, size, parts = self._content
        if sum(map(len, parts)) >= size:
            self._content = None
            self._told(method, raw, parts[0] if len(parts) == 1 else b"".join(parts))

    def _on_method(self, method: Method, channel: int) -> None:
        match method:
            case BasicDeliver() | BasicReturn():
                self._content = method, b"", 0, []
            case ConnectionClose(code, text):
                self._send(ConnectionCloseOk(), channel=0)
                self.fail(ConnectionLost(f"{self._address} closed the connection: {code} {text}"))
            case ChannelClose(code, text):
                self._send(ChannelCloseOk(), channel)
                self._refused(request_error(code, text))
            case BasicCancel():
                self.fail(ConnectionLost(f"{self._address} ended the consumer: its queue is gone or moved"))
            case ConnectionBlocked() | ConnectionUnblocked():
                return  # confirms are late then, and nothing is lost
            case _ if self._waiting is not None and not self._waiting.done() and _is_answer(method):
                self._waiting.set_result(method)
            case _:
                self._told(method, b"", b"")

    def _refused(self, error: RequestError) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)
        else:
            self.fail(error)


def _is_answer(method: Method) -> bool:
    return method.name.endswith("-ok") or isinstance(method, ConnectionStart | ConnectionTune)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + _END
