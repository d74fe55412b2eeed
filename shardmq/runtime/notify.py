"""Tells systemd or `shardmq up` how a process is, by systemd's protocol (sd_notify(3)).

    READY=1, STOPPING=1     once
    SHOVELS=1               from the coordinator to `shardmq up`: how many there are, whenever that changes
    STATUS=serving          or what is wrong, whenever that changes
    WATCHDOG=1              at least twice in WATCHDOG_USEC, from the loop that does the work

Without NOTIFY_SOCKET in the environment nobody is told.
"""

import functools
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

from shardmq.errors import StartupRefused

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
"""Environment name of the datagram socket that is told; not set where nothing is to be told."""

SUPERVISOR: Final = "SHARDMQ_SUPERVISOR"
"""Environment name of the process id without which a child of `shardmq up` must not live on."""

WATCHDOG_USEC: Final = "WATCHDOG_USEC"
"""Environment name of the microseconds after which a silent process is taken for hung; not set where nobody watches."""

WATCHDOG_PID: Final = "WATCHDOG_PID"
"""Environment name of the process that is meant; whoever inherits the variables is not."""

BEAT_SECONDS: Final = 5.0
"""Time between two beats, where the watchdog wants none sooner."""

STATUS_BYTES: Final = 1000
"""Of a status; one line of `systemctl status`."""

SERVING: Final = "serving"
"""The status of a process with which nothing is wrong."""

_PR_SET_PDEATHSIG: Final = 1


def ready() -> None:
    """Tell that this process serves from now on."""
    _tell(b"READY=1")


def stopping() -> None:
    """Tell that this process is stopping."""
    _tell(b"STOPPING=1")


def shovels(count: int) -> None:
    """Tell how many shovels there are: the process that runs them is there while there are any."""
    _tell(b"SHOVELS=%d" % count)


def watchdog_seconds() -> float | None:
    """After how long a silent process is taken for hung; None where nobody watches this one."""
    microseconds = os.environ.get(WATCHDOG_USEC, "")
    meant = os.environ.get(WATCHDOG_PID, "")
    if not microseconds.isdecimal() or int(microseconds) == 0 or meant not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6


class Heartbeat:
    """Tells that a loop turns, and what is wrong with its process.

    Args:
        wrong: returns what is wrong now, a text each.
    """

    def __init__(self, wrong: Callable[[], Sequence[str]]) -> None:
        watchdog = watchdog_seconds()
        self._wrong = wrong
        self._is_watched = watchdog is not None
        self._pause = BEAT_SECONDS if watchdog is None else min(watchdog / 2, BEAT_SECONDS)
        self._due = 0.0 if os.environ.get(NOTIFY_SOCKET) else float("inf")
        self._said = b""

    @property
    def pause(self) -> float:
        """Seconds between two beats."""
        return self._pause

    def beat(self, now: float) -> None:
        """Tell it if it is time to. Call it with every tick, with monotonic time."""
        if now < self._due:
            return
        self._due = now + self._pause
        status = " ".join("; ".join(self._wrong()).split()).encode()[:STATUS_BYTES] or SERVING.encode()
        lines = [b"WATCHDOG=1"] if self._is_watched else []
        if status != self._said:
            self._said = status
            lines.append(b"STATUS=" + status)
        if lines:
            _tell(b"\n".join(lines), socket.MSG_DONTWAIT)


def _tell(state: bytes, flags: int = 0) -> None:
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # systemd's way to write an abstract socket
        address = "\0" + address[1:]
    try:
        _teller().sendto(state, flags, address)
    except (ConnectionRefusedError, FileNotFoundError, BlockingIOError):
        return  # the supervisor is gone, or too busy to hear a beat; a broker does not stop for that


@functools.cache
def _teller() -> socket.socket:
    """The socket that tells, for as long as the process lives: later there may be no descriptor for another."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


os.register_at_fork(after_in_child=_teller.cache_clear)  # a fork tells over a socket of its own


def die_with_parent() -> None:
    """Have the kernel kill this process when its supervisor dies, however that happens.

    Otherwise a `kill -9` of the supervisor would leave shards behind that lock their stores. What they confirmed is on
    disk, so killing them loses nothing.

    Raises:
        StartupRefused: the supervisor is dead already.
    """
    supervisor = os.environ.get(SUPERVISOR)
    if not supervisor:
        return
    import ctypes  # here, because only children of `shardmq up` need it

    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != int(supervisor):  # it died before the call, which then came too late
        raise StartupRefused(f"the supervisor (process {supervisor}) that started this process is gone")
