"""Tells systemd or `shardmq up` that a process is ready or stopping, by systemd's protocol (sd_notify(3))."""

import os
import signal
import socket
from typing import Final

from shardmq.errors import StartupRefused

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
"""Environment name of the datagram socket that is told; not set where nothing is to be told."""

SUPERVISOR: Final = "SHARDMQ_SUPERVISOR"
"""Environment name of the process id without which a child of `shardmq up` must not live on."""

_PR_SET_PDEATHSIG: Final = 1


def ready() -> None:
    """Tell that this process serves from now on."""
    _tell(b"READY=1")


def stopping() -> None:
    """Tell that this process is stopping."""
    _tell(b"STOPPING=1")


def _tell(state: bytes) -> None:
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    if address.startswith("@"):  # systemd's way to write an abstract socket
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as teller:
        try:
            teller.sendto(state, address)
        except (ConnectionRefusedError, FileNotFoundError):
            return  # the supervisor is gone; a broker does not stop for that


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
