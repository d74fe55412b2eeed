"""Waiting in threads: an answer that one thread waits for, and a consumer's inbox."""

import math
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from shardmq.client.api.message import Delivery
from shardmq.client.core.groups.plain import PlainInbox
from shardmq.client.core.state import ConnectionState
from shardmq.client.sync.sockets import ReadingRight, Stream, WakePipe, wait_seconds
from shardmq.errors import ShardmqError, Timeout, Unroutable

T = TypeVar("T")


class PendingAnswer(Generic[T]):
    """One answer for one waiting thread. A bare lock: made and settled in a tenth of a concurrent Future's time."""

    __slots__ = ("_error", "_lock", "_result", "is_abandoned", "is_settled")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._result: T
        self._error: ShardmqError | None = None
        self.is_settled = False
        self.is_abandoned = False

    def done(self) -> bool:
        """Whether it is settled, or nobody waits any more."""
        return self.is_settled or self.is_abandoned

    @property
    def has_result(self) -> bool:
        """Whether a request was carried out: also for a thread that was interrupted in the moment the answer came."""
        return self.is_settled and self._error is None

    def set_result(self, result: T, /) -> None:
        """Settle it."""
        self._result = result
        self.is_settled = True
        self._lock.release()

    def set_exception(self, error: ShardmqError, /) -> None:
        """Settle it with an error for `result` to raise."""
        self._error = error
        self.is_settled = True
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Whether it was settled within so many seconds."""
        until = time.monotonic() + seconds
        while not self._lock.acquire(timeout=wait_seconds(until)):
            if time.monotonic() >= until:
                return False
        return True

    def result(self) -> T:
        """The result of a settled answer.

        Raises:
            ShardmqError: what it was settled with.
        """
        if self._error is not None:
            raise self._error
        return self._result


class PendingConfirm(PendingAnswer[None]):
    """The confirm of one message for one waiting thread."""

    __slots__ = ()

    def settled(self, _count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Settle it with the message's confirm, before which the message may have come back."""
        refused = error if not taken else None
        if (fault := refused or self._error) is not None:
            self.set_exception(fault)
        else:
            self.set_result(None)

    def returned(self, _count: int, error: Unroutable) -> bool:
        """Keep the message that came back: that is told with its confirm."""
        self._error = error
        return False


class _End:
    """The entry behind the last delivery."""

    __slots__ = ("error",)

    def __init__(self, error: ShardmqError | None) -> None:
        self.error = error


class DeliveryQueue(PlainInbox):
    """A consumer's inbox: the I/O thread puts, another thread takes."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Delivery | _End] = SimpleQueue()

    def deliver(self, delivery: Delivery) -> None:
        """Put messages that have come."""
        self._queue.put(delivery)

    def end(self, error: ShardmqError | None) -> None:
        """Put the end behind the last delivery."""
        self._queue.put(_End(error))

    def ready(self) -> bool:
        """Whether taking would not wait."""
        return not self._queue.empty()

    def take(self, seconds: float | None) -> Delivery | None:
        """The next delivery, None when the consumer has ended.

        Args:
            seconds: to wait, None for as long as it takes: the end comes with the connection's at the latest.

        Raises:
            Empty: nothing came in time.
            ShardmqError: the consumer ended, and not because it was cancelled here.
        """
        taken = self._get(math.inf if seconds is None else time.monotonic() + seconds)
        if isinstance(taken, Delivery):
            return taken
        self._queue.put(taken)
        if taken.error is not None:
            raise taken.error
        return None

    def _get(self, until: float) -> Delivery | _End:
        while True:
            try:
                return self._queue.get(timeout=wait_seconds(until))
            except Empty:
                if time.monotonic() >= until:
                    raise

    def drain(self) -> list[Delivery]:
        """What was delivered and not taken."""
        left: list[Delivery] = []
        while True:
            try:
                taken = self._queue.get_nowait()
            except Empty:
                return left
            if isinstance(taken, Delivery):
                left.append(taken)


class Uninterrupted:
    """What is said to the broker in one step is said whole, or the connection is made anew.

        with transport.lock, transport.uninterrupted: …

    A signal's handler may raise anywhere in it: between a request's number and the request, or in the middle of a
    frame. Nobody knows then what the broker has heard. Where it raises as the step ends, the step was done.

    Args:
        tell: is called where it was interrupted.
    """

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.left_by(error)

    def left_by(self, error: BaseException) -> None:
        """Tell of an interruption, if it is one."""
        if not isinstance(error, Exception):
            self._tell()


class AnswerReader(ABC):
    """How threads wait for the answers of a connection: the base of its transport.

    Who waits for the only answer there is to come reads it itself; all others are woken by the I/O thread. (A publish
    with its confirm then costs the program 80 µs of processor, and not 112.)

    Attributes:
        lock: guards the core and everything to be sent.
        uninterrupted: is entered behind the lock where something is said to the broker.
    """

    def __init__(self, state: ConnectionState) -> None:
        self.lock = threading.Lock()
        self.uninterrupted = Uninterrupted(self._interrupted)
        self._state = state
        self._socket: Stream | None = None
        self._unsent: deque[memoryview] = deque()
        self._broken: OSError | None = None
        self._interest = select.POLLIN  # what the I/O thread watches the socket for
        self._right = ReadingRight()
        self._wakes = WakePipe()
        self._waiting: set[PendingAnswer[Any]] = set()

    @abstractmethod
    def _read(self) -> bool:
        """Read once, and take in what came; whether something did."""

    def wait(self, answer: PendingAnswer[T], seconds: float, what: str, whole: float | None = None) -> T:
        """The answer's result. Not under `lock`.

        Args:
            answer: it.
            seconds: to wait.
            what: was asked, in words, for the error.
            whole: the seconds that the error names, where a part of them has passed before.

        Raises:
            Timeout: it did not come in so many seconds; it is given up.
            ShardmqError: what the answer is.
        """
        until = time.monotonic() + seconds
        right, reads = self._right, False
        try:
            with self.lock:
                self._waiting.add(answer)
                reads = self._is_only_answer() and right.borrow(answer)
                if not reads and (right.is_lent or not self._interest & select.POLLIN):
                    self._listen()
            if reads:
                right.read_until(answer.done, self._read, until)
            if not answer.is_settled:
                if reads:  # what went wrong is the I/O thread's
                    with self.lock:
                        self._listen()
                answer.wait(until - time.monotonic())
        finally:
            if right.holder is answer:  # before anything is called: a signal's handler could raise
                right.holder = None
            answer.is_abandoned = True
            self._waiting.discard(answer)
            with self.lock:
                # Who sends meanwhile what nobody waits for, or waits, ends the loan; then it is ended already.
                if reads and (self._waiting or right.fault is not None or not answer.is_settled):
                    self._listen()
        if not answer.is_settled:
            raise Timeout(f"{what}: no answer in {whole or seconds:g} s{self._state.excuse()}")
        return answer.result()

    def _is_only_answer(self) -> bool:
        """Whether nothing else is to come than one answer, over a plain socket that takes all that is sent."""
        is_quiet = len(self._waiting) == 1 and not self._unsent and self._broken is None
        return is_quiet and isinstance(self._socket, socket.socket) and self._state.is_up and self._state.expected == 1

    def _listen(self) -> None:
        """Have the I/O thread read. Under `lock`."""
        self._right.end_loan()
        self._wake()

    def _interrupted(self) -> None:
        """Have the I/O thread make the connection anew."""
        self._broken = InterruptedError("a thread was interrupted while it talked to the broker")
        self._wake()

    def _wake(self) -> None:
        try:
            self._wakes.wake()
        except OSError:
            if self._state.fault is None:  # else the thread has ended, and closed it
                raise
