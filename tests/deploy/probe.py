"""What a service may do: run as one, it tries what hardening is to prevent, and writes what came of it into a file.

    python probe.py FILE

Each act is one that an ordinary user may do where nothing is hardened.
"""

import contextlib
import ctypes
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER: Final = 0x10000000
PERSONALITY_BSD: Final = 0x0006


def call(name: str, *arguments: int) -> None:
    """Call a function of the C library."""
    if getattr(LIBRARY, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def set_user_id() -> None:
    own = Path(sys.argv[1]).with_suffix(".program")
    own.touch()
    own.chmod(0o4755)


def send(address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (address, 9))


def reach_packets() -> None:
    """A family is looked at first, then the right to use it: who lacks that alone is refused otherwise."""
    with contextlib.suppress(PermissionError):
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


def end_of_private_file() -> None:
    own = Path(sys.argv[1]).with_suffix(".private")
    own.touch()
    if own.stat().st_mode & 0o077 == 0:
        raise OSError(0, "nobody else can read it")


def writable(place: str) -> None:
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise OSError(0, "read-only")


ACTS: Final[dict[str, Callable[[], object]]] = {
    "ProtectSystem": lambda: Path("/srv/open/written").write_text(""),
    "ProtectHome": lambda: Path("/home/secret").read_text(),
    "ProtectProc": lambda: Path("/proc/1/comm").read_text(),
    "ProtectControlGroups": lambda: writable("/sys/fs/cgroup"),
    "PrivateTmp": lambda: Path("/tmp/open").read_text(),
    "PrivateDevices": lambda: Path("/dev/open").read_text(),
    "RestrictAddressFamilies": reach_packets,
    "RestrictNamespaces": lambda: call("unshare", CLONE_NEWUSER),
    "RestrictSUIDSGID": set_user_id,
    "LockPersonality": lambda: call("personality", PERSONALITY_BSD),
    "MemoryDenyWriteExecute": lambda: mmap.mmap(
        -1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    ).close(),
    "SystemCallFilter": lambda: call("ptrace", 0, 0, 0, 0),
    "UMask": end_of_private_file,
    "IPAddressDeny": lambda: send("192.0.2.1"),
    "IPAddressAllow": lambda: send("10.0.0.1"),
}


def outcomes() -> dict[str, str]:
    """What came of each act: a text where it failed, else an empty one."""
    found = {}
    for name, act in ACTS.items():
        try:
            act()
            found[name] = ""
        except OSError as fault:
            found[name] = fault.strerror or str(fault)
    return found


if __name__ == "__main__":
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    kept = {name: status[name].strip() for name in ("NoNewPrivs", "CapEff", "CapBnd", "CapAmb", "Seccomp")}
    Path(sys.argv[1]).write_text(json.dumps(kept | outcomes()))
