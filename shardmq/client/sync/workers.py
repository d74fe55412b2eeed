"""The threads of a connection that run the program's own functions: handlers, hooks, metrics."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Final

from shardmq.client.api.defaults import REPORT_SECONDS
from shardmq.client.api.metrics import MetricsCounter

_log = logging.getLogger("shardmq.client")

Job = Callable[[], None]

WORKERS: Final = 8
"""Handlers that may run at once on a connection, unless told otherwise: one that waits holds up no other channel."""

TURN_JOBS: Final = 64
"""A channel gives its thread back after so many jobs, as others may be waiting for one."""


OWN_CODE: Final = "shardmq.client."


def is_own_code(frame: FrameType | None) -> bool:
    """Tell whether a frame, or one that led to it, is this library's: it may hold a lock of the library's."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(OWN_CODE):
            return True
        frame = frame.f_back
    return False


class WorkerPool:
    """Threads that do jobs: started when there are jobs, ended with the connection.

    Args:
        size: how many at most.
        name: of the threads.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._is_stopped = False

    def do(self, job: Job) -> bool:
        """Have a job done by the next thread that is free; returns False, and does nothing, once it is stopped."""
        with self._changed:
            if self._is_stopped:
                return False
            self._jobs.append(job)
            if self._idle >= len(self._jobs):  # a thread takes its job and stops being idle in one step
                self._changed.notify()
                return True
            if self._threads >= self._size:
                return True
            self._threads += 1
        threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return True

    def stop(self) -> None:
        """Take no more jobs; those under way and waiting are done. Does not wait for them."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except BaseException:  # noqa: BLE001  a thread that ends would be missed by all that wait
                _log.exception("a job of the connection raised")

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs:
                if self._is_stopped:
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._jobs.popleft()


class SerialExecutor:
    """Does the jobs of one channel one after the other, in order, on any thread of the pool.

    Args:
        workers: who do them.
        idle: called when there are no more for now.
    """

    def __init__(self, workers: WorkerPool, idle: Job = lambda: None) -> None:
        self._workers = workers
        self._idle = idle
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._is_running = False

    def do(self, job: Job) -> None:
        """Have a job done behind those before it."""
        with self._lock:
            self._jobs.append(job)
            if self._is_running:
                return
            self._is_running = True
        self._workers.do(self._run)

    def _run(self) -> None:
        while True:
            for _ in range(TURN_JOBS):
                self._do(self._jobs.popleft())
                if not self._jobs:
                    self._do(self._idle)
                with self._lock:
                    if not self._jobs:
                        self._is_running = False
                        return
            if self._workers.do(self._run):
                return  # else the pool takes no jobs any more, and this thread does all that are left

    def _do(self, job: Job) -> None:
        try:
            job()
        except BaseException:  # noqa: BLE001  the jobs behind it are not to blame
            _log.exception("a job of the connection raised")


class MetricsReporter:
    """The thread that reports counts to the program's metrics.

    Args:
        name: of the thread.
        lock: under which counts rise.
    """

    def __init__(self, name: str, lock: threading.Lock) -> None:
        self._lock = lock
        self._due = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._meter: MetricsCounter | None = None

    def start(self, meter: MetricsCounter) -> None:
        """Begin to report."""
        self._meter = meter
        self._thread.start()

    def due(self) -> None:
        """Have the counts reported soon."""
        self._due.set()

    def stop(self, seconds: float) -> None:
        """Report the rest, and wait for that for so many seconds at most."""
        self._over.set()
        self._due.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._over.is_set():
            self._due.wait()
            self._over.wait(REPORT_SECONDS)
            self._due.clear()
            self._report()
        self._report()

    def _report(self) -> None:
        assert self._meter is not None
        with self._lock:
            counts = self._meter.take()
        try:
            self._meter.report(counts)
        except BaseException:  # noqa: BLE001  what is counted later is to be reported, too
            _log.exception("the metrics hook raised; of %s not all is reported", counts)
