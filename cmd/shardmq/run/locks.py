"""What a running broker has to itself: its data directory, its port, a directory for its sockets.

A lock is a file locked by flock(2): the kernel releases it when the owner ends, whatever the reason.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shardmq.cmd.terminal.process_options import ManagementChoice
from shardmq.errors import StartupRefused, StoreRefused
from shardmq.storage.files import make_folder

SOCKETS_PREFIX: Final = "shardmq-run-"
IPC_PATH_BYTES_MAX: Final = 107
"""sockaddr_un.sun_path, without its closing zero."""


@contextlib.contextmanager
def hold_data_dir(data_dir: Path) -> Iterator[None]:
    """Create the data directory and hold its lock.

    Raises:
        StoreRefused: it is in use, or not a directory we can write in.
    """
    path = data_dir / "lock"
    try:
        make_folder(data_dir)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as fault:
        raise StoreRefused(f"{data_dir} cannot be the data directory: {fault.strerror} ({fault.filename})") from fault
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreRefused(
            f"{data_dir} is in use by another `shardmq up`; stop that one, or choose another --data-dir"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_port(host: str, port: int, options: str = "--") -> Iterator[int]:
    """Check that the port for clients is free, and keep it reserved while gateways restart.

    Gateways share the port by SO_REUSEPORT, and so would a second broker's: its clients would reach either at random.
    Binding without SO_REUSEPORT shows whether anybody listens there.

    Args:
        host: address.
        port: 0 takes a free one.
        options: prefix of the options that choose address and port, for the error.

    Raises:
        StartupRefused: somebody listens there, or it is no address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
        keeper = socket.socket(family, kind, protocol)
        try:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            keeper.bind(address)
        except OSError:
            keeper.close()
            raise
    except OSError as fault:
        raise StartupRefused(
            f"cannot listen on {host} port {port}: {fault.strerror}; choose another {options}host or {options}port"
        ) from fault
    with keeper:
        yield int(keeper.getsockname()[1])


@contextlib.contextmanager
def hold_metrics_port(chosen: ManagementChoice) -> Iterator[int | None]:
    """Keep the port for scrapes, as `hold_port`; None where there is none.

    Raises:
        StartupRefused: somebody listens there, or it is no address of this machine.
    """
    if chosen.metrics_port is None:
        yield None
        return
    with hold_port(chosen.metrics_host, chosen.metrics_port, "--metrics-") as held:
        yield held


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """A directory for the processes' sockets that only this user can enter, with a path short enough for them.

    Directories that killed brokers left behind are removed.

    Raises:
        StartupRefused: the path of the directory for temporary files is too long.
    """
    sweep(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=SOCKETS_PREFIX))
    lock = os.open(path / "new-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Renamed once it is locked: a file `lock` that nobody holds has no owner any more.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (path / "new-lock").rename(path / "lock")
        longest = len(os.fsencode(path / "notify-coordinator"))
        if longest > IPC_PATH_BYTES_MAX:
            raise StartupRefused(
                f"socket names under {path} have {longest} bytes, {IPC_PATH_BYTES_MAX} are possible; "
                "set TMPDIR to a shorter path"
            )
        yield path
    finally:
        shutil.rmtree(path)
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove this user's socket directories in `folder` whose owners have ended."""
    for path in folder.glob(f"{SOCKETS_PREFIX}*"):
        try:
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
                continue
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # just being made, or just being removed
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:  # 0 when another process removed it meanwhile
                shutil.rmtree(path)
        except BlockingIOError:
            continue  # its owner is running
        finally:
            os.close(lock)


def is_wildcard(host: str) -> bool:
    """Whether an address to listen at is all that the machine has."""
    return host in ("", "0.0.0.0", "::")


def client_host(host: str) -> str:
    """The host to put into a URL for a broker that listens on `host`."""
    if is_wildcard(host):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
