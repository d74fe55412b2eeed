"""Addresses of the bus, and which of them are safe to use: `ipc://` in a private directory, `tcp://` with keys."""

import ipaddress
import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shardmq.errors import StartupRefused

IPC: Final = "ipc://"
TCP: Final = "tcp://"


def is_tcp(address: str) -> bool:
    """Whether an address leaves, or may leave, the machine.

    Raises:
        StartupRefused: the address is neither ipc nor tcp.
    """
    if not address.startswith((IPC, TCP)):
        raise StartupRefused(
            f"'{address}' is no address of the bus; use one like ipc:///run/shardmq/shard-0 or tcp://10.0.0.2:5680"
        )
    return address.startswith(TCP)


def is_loopback(address: str) -> bool:
    """Whether a TCP address can be reached from this machine only."""
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, an interface, or "*"
        return False


def check_private(address: str, must_exist: bool) -> None:
    """Refuse an ipc address whose socket other users could open or replace.

    Args:
        address: of the socket.
        must_exist: whether its directory has to exist, as a listener needs; a dialer waits for it.

    Raises:
        StartupRefused: the directory belongs to another user, other users can enter it, or it does not exist.
    """
    path = address.removeprefix(IPC)
    if not path.startswith("/"):
        raise StartupRefused(f"'{address}' has no absolute path; use one like ipc:///run/shardmq/shard-0")
    folder = Path(path).parent
    try:
        status = folder.stat()
    except FileNotFoundError:
        if must_exist:
            raise StartupRefused(
                f"the directory {folder} for a socket does not exist; `mkdir -m 700 {folder}`"
            ) from None
        return
    except OSError as fault:
        raise StartupRefused(f"{folder} cannot hold sockets: {fault.strerror}; choose another directory") from fault
    if status.st_uid != os.geteuid():
        raise StartupRefused(f"{folder} belongs to another user, who could replace its sockets; use one of your own")
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise StartupRefused(f"other users can enter {folder} and connect to the bus; `chmod 700 {folder}`")
