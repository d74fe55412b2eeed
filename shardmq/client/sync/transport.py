"""The thread that serves a connection's socket, and how other threads get past it.

A thread with something to say writes to the socket itself while nothing is waiting to be written (a publish then
costs no change of thread); what the socket does not take is left to the I/O thread. That one reads, beats, writes
leftovers, and flushes what was handed in as due. When the connection is lost it makes the next one. It runs nobody
else's code.

Locks: a channel's or publisher's own lock first, then `lock`; nothing is waited for under either.
"""

import logging
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from shardmq.client.api.defaults import (
    DIAL_SECONDS,
    REST_SECONDS,
    SILENT_BEATS,
    UNDELIVERED_BYTES_MAX,
    UNSENT_BYTES_MAX,
)
from shardmq.client.api.recovery import Backoff, Recovery
from shardmq.client.api.tls import hung_up
from shardmq.client.api.url import Address
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.interfaces import IgnoredReply
from shardmq.client.sync.answers import PendingAnswer
from shardmq.client.sync.sockets import Stream, TlsSocket, dial
from shardmq.errors import ConnectionFault, ConnectionLost, ProtocolError, ShardmqError, Timeout

_log = logging.getLogger("shardmq.client")
_UNHEARD: Final = IgnoredReply()

READ_BYTES: Final = 256 << 10
"""Read at once, into one buffer: a new one each time costs page faults, a smaller one more changes of thread."""


TICK_SECONDS: Final = 0.005
"""While acks or publishes are being collected, they are sent at least this often."""


class Flushable(Protocol):
    """Collects something to be sent, and says so with `Transport.due`."""

    def flush_due(self) -> None:
        """Send it. Called on the I/O thread; must not wait."""


class Transport:
    """See the module. Started by `start`, ends when the connection does for good.

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
        self.lock = threading.Lock()
        """Guards the core and everything to be sent."""
        self._core = core
        self._addresses = addresses
        self._tls = tls
        self._backoff = Backoff(recovery, addresses) if recovery is not None else None
        self._timeout = timeout
        self._properties = properties
        self._peer = str(core.address)
        self._socket: Stream | None = None
        self._descriptor = -1
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._stop_reader, self._stop_writer = socket.socketpair()  # readable once: when all is to end
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._interest = select.POLLIN
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._waiting_for_room: list[PendingAnswer] = []
        self._waiting = 0
        self._due: deque[Flushable] = deque()
        self._is_brisk = False
        self._broken: OSError | None = None
        self._is_stopped = False
        self._is_over = False
        self._heard_at = self._sent_at = self._connected_at = time.monotonic()
        self._rest_until = 0.0
        self._buffer = bytearray(READ_BYTES)
        self._thread = threading.Thread(target=self._run, name=f"shardmq {self._peer}", daemon=True)

    # --- for any thread -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the first address that answers, and begin.

        Raises:
            ConnectionLost: none does.
        """
        try:
            self._attach(*self._dial_first())
        except BaseException:
            self._close_all()
            raise
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Whether it ended within so many seconds."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def transmit(self) -> None:
        """Send what the core has for the server, or leave it to the I/O thread. Under `lock`."""
        frames = self._core.outgoing
        if not frames:
            return
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

    def wait(self, answer: PendingAnswer, seconds: float, what: str) -> Any:
        """The answer's result. Not under `lock`.

        Raises:
            Timeout: it did not come in so many seconds; it is given up.
            ShardmqError: what the answer is.
        """
        with self.lock:
            self._waiting += 1
            if not self._interest & select.POLLIN:
                self._wake()
        try:
            answer.wait(seconds)
        finally:
            with self.lock:
                self._waiting -= 1
                answer.is_abandoned = True
        if not answer.is_settled:
            raise Timeout(f"{what}: no answer in {seconds:g} s{self._core.excuse()}")
        return answer.result()

    def make_room(self, seconds: float) -> None:
        """Wait while too much is unsent. Not under `lock`.

        Raises:
            Timeout: the server does not read.
            ConnectionFault: the connection is gone.
        """
        if self._unsent_bytes <= UNSENT_BYTES_MAX:
            return
        answer = PendingAnswer()
        with self.lock:
            self._core.check()
            if self._unsent_bytes <= UNSENT_BYTES_MAX // 2:
                return  # it was written meanwhile; an answer is settled once, and by the I/O thread
            self._waiting_for_room.append(answer)
        self.wait(answer, seconds, f"sending ({self._unsent_bytes} bytes are unsent)")

    def taken(self, size: int) -> None:
        """So many delivered bytes were taken by their consumer."""
        with self.lock:
            self._core.undelivered -= size
            if not self._interest & select.POLLIN and not self._is_reading_held():
                self._wake()

    def due(self, flushable: Flushable) -> None:
        """Have it flushed within a tick."""
        self._due.append(flushable)
        if not self._is_brisk:
            self._is_brisk = True
            self._wake()

    def stop(self) -> None:
        """Close the socket, at once, and try no other."""
        with self.lock:
            self._is_stopped = True
            if not self._is_over:
                self._stop_writer.close()
        self._wake()

    # --- the thread itself -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                error = self._serve()
                with self.lock:
                    self._detach()
                    if not self._core.break_off(error):
                        return
                if not self._reconnect():
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
        except OSError as fault:
            return ConnectionLost(f"the connection to {self._peer} broke: {fault}")
        return ConnectionLost(f"the connection to {self._peer} was closed by this program")

    def _dial_first(self) -> tuple[Address, Stream]:
        last: ConnectionLost | None = None
        for place, address in enumerate(self._addresses):
            is_last = place == len(self._addresses) - 1
            try:
                seconds = self._timeout if is_last else min(self._timeout, DIAL_SECONDS)
                return address, dial(address, self._tls, seconds, self._stop_reader)
            except ConnectionLost as fault:
                last = fault
        assert last is not None
        raise last

    def _reconnect(self) -> bool:
        """Try until a socket is there; whether one is."""
        assert self._backoff is not None
        began = time.monotonic()
        self._backoff.lost(began, began - self._connected_at)
        while (planned := self._backoff.next(time.monotonic())) is not None:
            pause, address = planned
            if select.select([self._stop_reader], [], [], pause)[0] or self._is_stopped:
                return False
            try:
                stream = dial(address, self._tls, min(self._timeout, DIAL_SECONDS), self._stop_reader)
            except ConnectionLost as fault:
                _log.debug("recovery: %s", fault)
                continue
            with self.lock:
                if self._core.fault is not None:
                    stream.close()
                    return False
                self._attach(address, stream)
                self._core.open(self._properties, _UNHEARD)
                self.transmit()
            return True
        with self.lock:
            self._core.lose(
                ConnectionLost(
                    f"the connection to {self._peer} was lost, and the recovery given up after "
                    f"{time.monotonic() - began:.0f} s{self._core.excuse()}"
                )
            )
        return False

    def _attach(self, address: Address, stream: Stream) -> None:
        if self._backoff is not None:
            self._backoff.connected(address)
        self._core.address = address
        self._peer = str(address)
        self._broken = None
        self._interest = select.POLLIN
        self._descriptor = stream.fileno()
        self._poll.register(self._descriptor, self._interest)
        self._heard_at = self._sent_at = self._connected_at = time.monotonic()
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
        with self.lock:
            self._is_over = True
            self._detach()
            for closing in (self._wake_reader, self._wake_writer, self._stop_reader, self._stop_writer):
                closing.close()

    def _pass(self) -> None:
        for descriptor, event in self._poll.poll(self._patience() * 1000):
            if descriptor != self._descriptor:
                self._drain_wakes()
                continue
            if event & ~select.POLLOUT:
                while self._read() and isinstance(self._socket, TlsSocket) and self._socket.pending():
                    pass
            if event & select.POLLOUT:
                self._write()
        if self._broken is not None:
            while self._read():
                pass  # what the server said before it hung up tells why
            raise self._broken
        self._flush_due()
        self._restore()
        self._beat()
        self._set_interest()

    def _restore(self) -> None:
        """Send more of what was held; go on with what could not be restored a moment ago."""
        core = self._core
        if core.is_holding and self._unsent_bytes <= UNSENT_BYTES_MAX // 2:
            with self.lock:
                core.pump()
                self.transmit()
        if not core.is_resting:
            self._rest_until = 0.0
        elif not self._rest_until:
            self._rest_until = time.monotonic() + REST_SECONDS
        elif time.monotonic() >= self._rest_until:
            self._rest_until = 0.0
            with self.lock:
                core.rested()
                self.transmit()

    def _read(self) -> bool:
        assert self._socket is not None
        try:
            count = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return False
        if not count:
            raise ConnectionLost(hung_up(self._peer, self._core.address, self._core.is_open))
        self._heard_at = time.monotonic()
        with self.lock:
            self._core.receive(memoryview(self._buffer)[:count])
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
            self._due.popleft().flush_due()

    def _beat(self) -> None:
        interval = self._core.server.heartbeat
        now = time.monotonic()
        if not self._interest & select.POLLIN:
            self._heard_at = now  # it is we who do not listen
        if not self._core.is_up and now - self._heard_at >= self._timeout and self._core.is_open:
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
        if not self._core.is_up or self._core.is_holding:
            is_ready = self._core.is_holding and self._unsent_bytes <= UNSENT_BYTES_MAX // 2
            return 0.0 if is_ready else REST_SECONDS / 5
        interval = self._core.server.heartbeat
        if not interval:
            return 60.0
        now = time.monotonic()
        next_beat = self._sent_at + interval / 2
        return max(min(next_beat, self._heard_at + interval * SILENT_BEATS) - now, 0.0) + 0.001

    def _is_reading_held(self) -> bool:
        return self._core.undelivered > UNDELIVERED_BYTES_MAX and not self._waiting

    def _set_interest(self) -> None:
        with self.lock:
            interest = (0 if self._is_reading_held() else select.POLLIN) | (select.POLLOUT if self._unsent else 0)
            if interest != self._interest:
                self._interest = interest
                self._poll.modify(self._descriptor, interest)

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            return  # as many wakes as a pipe holds are waiting already
        except OSError:
            if self._core.fault is None:  # else the thread has ended, and closed it
                raise

    def _drain_wakes(self) -> None:
        try:
            self._wake_reader.recv(4096)
        except BlockingIOError:
            return
