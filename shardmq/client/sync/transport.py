"""The thread that serves a connection's socket, and how other threads get past it.

A thread with something to say writes to the socket itself while nothing is waiting to be written (a publish then
costs no change of thread); what the socket does not take is left to the I/O thread. That one reads, beats, writes
leftovers, and flushes what was handed in as due. When the connection is lost it makes the next one. It runs nobody
else's code. A thread that waits for the only answer there is to come reads it itself (`ReadingRight`).

Locks: a channel's or publisher's own lock first, then the right to read, then `lock`; nothing is waited for under them.
"""

import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from shardmq.client.api.defaults import (
    RESTORE_PAUSE_SECONDS,
    SILENT_BEATS,
    UNDELIVERED_BYTES_MAX,
    UNSENT_BYTES_MAX,
)
from shardmq.client.api.tls import hung_up
from shardmq.client.api.url import Address
from shardmq.client.core.channel import ChannelCore
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.client.sync.answers import AnswerReader, PendingAnswer
from shardmq.client.sync.reconnect import Reconnect
from shardmq.client.sync.sockets import LENT_SECONDS, Stream, TlsSocket
from shardmq.errors import ConnectionFault, ConnectionLost, ProtocolError, ShardmqError

T = TypeVar("T")

_UNHEARD: Final = IgnoredReply()
READ_BYTES: Final = 256 << 10
"""Read at once, into one buffer: a new one each time costs page faults, a smaller one more changes of thread."""

TICK_SECONDS: Final = 0.005
"""While acks or publishes are being collected, they are sent at least this often."""


class Transport(AnswerReader):
    """The socket of one connection, over all its lives, and the thread that serves it.

    Args:
        core: the connection's.
        reconnect: makes its sockets.
        timeout: seconds that a reconnect may take from its first byte to its last answer.
        properties: what the broker is told of this program.
    """

    def __init__(self, core: ConnectionCore, reconnect: Reconnect, timeout: float, properties: dict[str, Any]) -> None:
        super().__init__(core.state)
        self._core = core
        self._reconnect = reconnect
        self._timeout = timeout
        self._properties = properties
        self._peer = str(core.state.address)
        self._descriptor = -1
        self._poll = select.poll()
        self._poll.register(self._wakes.reader, select.POLLIN)
        self._unsent_bytes = 0
        self._waiting_for_room: list[PendingAnswer[None]] = []
        self._due: deque[Callable[[], None]] = deque()
        self._is_brisk = False
        self._is_stopped = False
        self._is_over = False
        self._heard_at = self._sent_at = self._connected_at = time.monotonic()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        self._thread = threading.Thread(target=self._run, name=f"shardmq {self._peer}", daemon=True)

    def start(self) -> None:
        """Connect to the first address that answers, and begin.

        Raises:
            ConnectionLost: none does.
        """
        try:
            self._attach(*self._reconnect.dial_first())
        except BaseException:
            self._close_all()
            raise
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the thread; returns whether it ended within so many seconds."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def transmit(self, is_awaited: bool = False) -> None:
        """Send what the core has for the server, or leave it to the I/O thread. Under `lock`.

        Args:
            is_awaited: whether this thread waits for what is answered, if anything is.
        """
        frames = self._state.outgoing
        if not frames:
            return
        if self._right.is_lent and not is_awaited:
            self._listen()
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        frames.clear()
        if self._socket is None:
            return  # it is lost; what matters is said again by the core
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError as fault:
                self._broken = fault
                self._wake()
                return
            self._sent_at = time.monotonic()
        if sent < len(data):
            self._unsent.append(memoryview(data)[sent:])
            self._unsent_bytes += len(data) - sent
            if len(self._unsent) == 1:
                self._wake()

    def make_room(self, seconds: float) -> None:
        """Wait while too much is unsent. Not under `lock`.

        Raises:
            Timeout: the server does not read.
            ConnectionFault: the connection is gone.
        """
        if self._unsent_bytes <= UNSENT_BYTES_MAX:
            return
        answer: PendingAnswer[None] = PendingAnswer()
        with self.lock:
            self._state.check()
            if self._unsent_bytes <= UNSENT_BYTES_MAX // 2:
                return  # it was written meanwhile; an answer is settled once, and by the I/O thread
            self._waiting_for_room.append(answer)
        self.wait(answer, seconds, f"sending ({self._unsent_bytes} bytes are unsent)")

    def taken(self, channel: ChannelCore, size: int) -> None:
        """Count delivered bytes as taken by their consumer."""
        with self.lock:
            self._state.taken(channel, size)
            if not self._interest & select.POLLIN and not self._is_reading_held():
                self._wake()

    def due(self, flush: Callable[[], None]) -> None:
        """Have something flushed within a tick, on the I/O thread: `flush` must not wait."""
        self._due.append(flush)
        if not self._is_brisk:
            self._is_brisk = True
            self._wake()

    def stop(self) -> None:
        """Close the socket, at once, and try no other."""
        with self.lock:
            self._is_stopped = True
            if not self._is_over:
                self._reconnect.stop()
        self._wake()

    def _run(self) -> None:
        try:
            while True:
                error = self._serve()
                with self._right.taken_back(self._socket), self.lock:
                    self._detach()
                    if not self._core.break_off(error):
                        return
                if not self._dial_again():
                    return
        finally:
            with self.lock:
                self._core.lose(ConnectionLost(f"the connection to {self._peer} ended by an error in this library"))
            self._close_all()

    def _serve(self) -> ShardmqError:
        """Serve the socket until it is lost; returns why."""
        try:
            while not self._is_stopped:
                self._pass()
        except ProtocolError as fault:
            with self.lock:
                self._core.accuse(fault)
                self.transmit()
            return fault
        except ConnectionFault as fault:
            return fault
        except (ConnectionResetError, BrokenPipeError):  # it went with something of ours unread
            return ConnectionLost(hung_up(self._peer, self._state.address, self._state.is_open))
        except OSError as fault:
            return ConnectionLost(f"the connection to {self._peer} broke: {fault}")
        return ConnectionLost(f"the connection to {self._peer} was closed by this program")

    def _dial_again(self) -> bool:
        """Dial again, and open the connection; returns whether there is one."""
        try:
            found = self._reconnect.dial_again(self._peer, time.monotonic() - self._connected_at)
        except ConnectionLost as given_up:
            with self.lock:
                self._core.lose(ConnectionLost(f"{given_up.text}{self._state.excuse()}"))
            return False
        if found is None:
            return False
        address, stream = found
        with self.lock:
            if self._state.fault is not None:
                stream.close()
                return False
            self._attach(address, stream)
            self._core.open(self._properties, _UNHEARD)
            self.transmit()
        return True

    def _attach(self, address: Address, stream: Stream) -> None:
        self._state.address = address
        self._peer = str(address)
        self._broken = None
        self._interest = select.POLLIN
        self._descriptor = stream.fileno()
        self._poll.register(self._descriptor, self._interest)
        self._heard_at = self._sent_at = self._connected_at = time.monotonic()
        self._right.renew(stream)
        self._socket = stream

    def _detach(self) -> None:
        stream, self._socket = self._socket, None
        if stream is not None:
            self._poll.unregister(self._descriptor)
            stream.close()
        self._unsent.clear()
        self._unsent_bytes = 0
        for answer in self._waiting_for_room:
            answer.set_result(None)
        self._waiting_for_room.clear()

    def _close_all(self) -> None:
        with self._right.taken_back(self._socket), self.lock:
            self._is_over = True
            self._detach()
            self._reconnect.close()
            self._wakes.close()

    def _pass(self) -> None:
        for descriptor, event in self._poll.poll(self._patience() * 1000):
            if descriptor != self._descriptor:
                self._wakes.drain()
                continue
            if event & ~select.POLLOUT:
                while self._right.use(self._read) and isinstance(self._socket, TlsSocket) and self._socket.pending():
                    pass
            if event & select.POLLOUT:
                self._write()
        if self._right.fault is not None:
            raise self._right.fault
        if self._broken is not None:
            while self._right.use(self._read):
                pass  # what the server said before it hung up tells why
            raise self._broken
        self._flush_due()
        self._restore()
        self._beat()
        self._right.expire()
        self._set_interest()

    def _restore(self) -> None:
        """Send more of what was held; go on with what could not be restored a moment ago."""
        core = self._core
        if core.state.is_holding and self._unsent_bytes <= UNSENT_BYTES_MAX // 2:
            with self.lock:
                core.state.pump()
                self.transmit()
        if self._reconnect.is_due(core.is_pausing):
            with self.lock:
                core.go_on()
                self.transmit()

    def _read(self) -> bool:
        assert self._socket is not None
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionLost(hung_up(self._peer, self._state.address, self._state.is_open))
        self._heard_at = time.monotonic()
        with self.lock:
            self._core.receive(self._view[:count])
            if self._state.outgoing:
                self.transmit()
        return True

    def _write(self) -> None:
        with self.lock:
            while self._unsent and self._socket is not None:
                head = self._unsent[0]
                try:
                    sent = self._socket.send(head)
                except BlockingIOError:
                    break
                self._sent_at = time.monotonic()
                self._unsent_bytes -= sent
                if sent < len(head):
                    self._unsent[0] = head[sent:]
                    break
                self._unsent.popleft()
            if self._unsent_bytes <= UNSENT_BYTES_MAX // 2 and self._waiting_for_room:
                for answer in self._waiting_for_room:
                    answer.set_result(None)
                self._waiting_for_room.clear()

    def _flush_due(self) -> None:
        if not self._due:
            self._is_brisk = False
        # What came between the two looks at it is flushed now; what comes later finds it not brisk, and wakes us.
        for _ in range(len(self._due)):
            self._is_brisk = True
            self._due.popleft()()

    def _beat(self) -> None:
        interval = self._state.server.heartbeat
        now = time.monotonic()
        if not (self._interest & select.POLLIN or self._right.is_lent):
            self._heard_at = now  # it is we who do not listen
        if not self._state.is_up and now - self._heard_at >= self._timeout and self._state.is_open:
            raise ConnectionLost(f"the broker at {self._peer} did not restore the connection in {self._timeout:g} s")
        if not interval:
            return
        if now - self._heard_at >= interval * SILENT_BEATS:
            raise ConnectionLost(f"nothing heard from the broker at {self._peer} for {interval * SILENT_BEATS} s")
        if now - self._sent_at >= interval / 2:
            with self.lock:
                self._core.heartbeat()
                self.transmit()
                self._sent_at = now

    def _patience(self) -> float:
        if self._is_brisk:
            return TICK_SECONDS
        if self._right.is_lent:
            return LENT_SECONDS
        if not self._state.is_up or self._state.is_holding:
            is_ready = self._state.is_holding and self._unsent_bytes <= UNSENT_BYTES_MAX // 2
            return 0.0 if is_ready else RESTORE_PAUSE_SECONDS / 5
        interval = self._state.server.heartbeat
        if not interval:
            return 60.0
        now = time.monotonic()
        next_beat = self._sent_at + interval / 2
        return max(min(next_beat, self._heard_at + interval * SILENT_BEATS) - now, 0.0) + 0.001

    def _is_reading_held(self) -> bool:
        return self._state.undelivered > UNDELIVERED_BYTES_MAX and not self._waiting

    def _set_interest(self) -> None:
        with self.lock:
            is_held = self._right.is_lent or self._is_reading_held()
            interest = (0 if is_held else select.POLLIN) | (select.POLLOUT if self._unsent else 0)
            if interest != self._interest:
                self._interest = interest
                self._poll.modify(self._descriptor, interest)
