"""CurveZMQ for links over TCP: a key for each process, and a list of the keys that are allowed.

    <folder>/<name>.key_secret     this process's own pair of keys, readable by its user alone (0600)
    <folder>/allowed/<name>.key    public keys of the processes this one talks with, itself calling or being called

Names are those of the processes: `coordinator`, `shard-0`, and any other for a gateway, such as `gateway-0`. With
several hosts the host comes first, as in `a.shard-0`; replicas of a group call those on other hosts alone. A dialer
accepts answers only from the holder of the key that is allowed under the listener's name. A listener accepts calls from
every allowed key, and a key stands for the process of its name only: a caller with the key of gateway-0 can claim to be
neither the coordinator nor gateway-1. A listener reads the list for every call, so that keys can be added and removed
while processes run; open sessions stay open. The process's own pair and the keys of listeners are read at the start.

ZeroMQ accepts every key unless a handler answers its questions (ZAP, rfc.zeromq.org/spec/27). The guard answers them on
a thread of its own, which sleeps until a process calls.
"""

import logging
import os
import re
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import zmq
import zmq.auth
from zmq.utils.z85 import encode as z85

from shardmq.bus.address import is_loopback
from shardmq.errors import StartupRefused

SECRET_SUFFIX: Final = ".key_secret"
PUBLIC_SUFFIX: Final = ".key"
ALLOWED: Final = "allowed"
ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
COMPLAINT_SECONDS: Final = 60.0
"""A refused caller calls again at once; it is logged this often."""

COMPLAINTS_MAX: Final = 1000
"""Refused callers remembered for that; with one more, all are forgotten."""

_FAILURES: Final = {
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "it calls without encryption, or expects another key than ours",
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): (
        "it hung up during the handshake, as callers do without encryption, or with another key than ours in mind"
    ),
}
"""Handshakes that fail before the key is checked. A refused key is logged where it is checked."""

_CLOSED: Final = int(zmq.EVENT_MONITOR_STOPPED)
"""The last event of a listener."""

COORDINATOR: Final = "coordinator"
SHARD: Final = "shard"
GATEWAY: Final = "gateway"
REPLICA: Final = "replica"
"""Roles. A coordinator or shard of several hosts has the last one, too, where it talks with its group's others."""

CALLERS: Final = {
    COORDINATOR: frozenset({GATEWAY}),
    SHARD: frozenset({COORDINATOR, GATEWAY}),
    REPLICA: frozenset({REPLICA}),
}
"""Which roles may call a process of each role."""

_SHARD_NAME: Final = re.compile(r"shard-\d+")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CurveKeys:
    """The protection of a process's links over TCP.

    Attributes:
        folder: of the keys; None where there are none, and TCP is refused.
        name: of this process, and of its own pair of keys.
        is_insecure: whether loopback addresses need no keys, so that every program of this machine may call.
    """

    folder: Path | None = None
    name: str = ""
    is_insecure: bool = False


NO_KEYS: Final = CurveKeys()
"""Links over ipc alone."""


class Closable(Protocol):
    """A socket that is none of libzmq's."""

    def close(self, seconds: float) -> None:
        """Close it within so many seconds, for what is still to be sent."""


class Context(zmq.Context["zmq.Socket[bytes]"]):
    """A ZeroMQ context that knows how its TCP links are protected, and its sockets that are none of libzmq's.

    `poller.context` makes it.
    """

    security: CurveKeys = NO_KEYS
    guard: "CurveGuard | None" = None
    own_sockets: tuple[Closable, ...] = ()

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets, and end the context."""
        for socket in self.own_sockets:
            socket.close((linger or 0) / 1000)
        super().destroy(linger)


class CurveGuard:
    """A process's own keys, the keys it allows, and the thread that answers ZeroMQ about callers.

    Args:
        context: the context whose sockets are guarded.
        folder: of the keys.
        name: of this process.

    Raises:
        StartupRefused: the process's own keys are missing, not readable, or readable by others.
    """

    def __init__(self, context: Context, folder: Path, name: str) -> None:
        self._name = name
        self._answers = False
        self._allowed = folder / ALLOWED
        self._public, self._secret = _load_pair(folder, name)
        if not self._allowed.is_dir():
            raise StartupRefused(
                f"there is no folder {self._allowed}; put the public keys of the processes to talk with there"
            )
        self._complaints: dict[str, float] = {}
        self._context = context
        self._listeners = 0  # that were protected

    def protect_listener(self, socket: "zmq.Socket[bytes]") -> None:
        """Have a socket accept calls from allowed keys only. Called before it is bound."""
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = self._public, self._secret
        self._listeners += 1  # in the address, as that of a listener which was just closed may not be free yet
        sockets = [socket.get_monitor_socket(sum(_FAILURES) | _CLOSED, f"inproc://bus-guard.{self._listeners}")]
        if not self._answers:  # one answers for all sockets of a context
            sockets.append(self._context.socket(zmq.REP))
            sockets[1].bind(ZAP_ADDRESS)
            self._answers = True
        for one in sockets:
            one.linger = 0
        # A socket may be handed to another thread, as long as no two have it: from here on these are that one's.
        threading.Thread(target=self._answer_all, args=sockets, name="bus guard", daemon=True).start()

    def protect_dialer(self, socket: "zmq.Socket[bytes]", peer: str) -> None:
        """Have a socket call the holder of a peer's key only. Called before it is connected.

        Raises:
            StartupRefused: the key does not exist.
        """
        path = self._allowed / f"{peer}{PUBLIC_SUFFIX}"
        try:
            public, _ = zmq.auth.load_certificate(path)
        except (OSError, ValueError) as fault:
            raise StartupRefused(f"the public key of {peer} cannot be read: {fault}; copy it to {path}") from fault
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = self._public, self._secret, public

    def refuse(self, address: str, called: str, key_name: str, role: str, name: str) -> str | None:
        """The reason why the holder of a key may not call as the process that it claims to be; None where it may.

        Args:
            address: the address that was called, for the log.
            called: role of the process that was called.
            key_name: the name under which the caller's key is allowed.
            role: role that the caller claims.
            name: name that the caller claims.
        """
        allowed = self._allowed / f"{key_name}{PUBLIC_SUFFIX}"
        if name != key_name:
            reason = (
                f"it says it is {name[:80]!r}, and its key is allowed as {key_name!r}; if that is right, rename "
                f"{allowed} to {name[:80]}{PUBLIC_SUFFIX}"
            )
        elif called == role == REPLICA:
            if may_replicate(key_name, self._name):
                return None
            reason = f"it is {name}, and {self._name} replicates with its group's replicas on other hosts alone"
        elif role != role_of(key_name):
            reason = f"it says it is a {role[:80]}, and the key {allowed} is a {role_of(key_name)}'s by its name"
        elif role not in CALLERS.get(called, ()):
            reason = f"it is {name}, and a {role} may not call a {called}"
        else:
            return None
        self._complain(f"a caller of {address}: {reason}")
        return reason

    def _answer_all(self, failures: "zmq.Socket[bytes]", questions: "zmq.Socket[bytes] | None" = None) -> None:
        """Serve as a listener's thread: until that is closed, and for all later ones, where it has the questions."""
        from zmq.utils.monitor import recv_monitor_message  # brings asyncio along, which most processes do without

        poller = zmq.Poller()
        for one in filter(None, (failures, questions)):
            poller.register(one, zmq.POLLIN)
        try:
            while poller.sockets:
                for socket, _ in poller.poll():
                    if socket is questions:
                        questions.send_multipart(self._answer(questions.recv_multipart()))
                        continue
                    event = recv_monitor_message(failures)
                    self._note_failure(event)
                    if event["event"] == _CLOSED:
                        poller.unregister(failures)
                        failures.close()
        except zmq.ContextTerminated:
            failures.close()
            if questions is not None:
                questions.close()

    def _answer(self, question: list[bytes]) -> list[bytes]:
        """Answer a ZAP request: whether a key may call, and its name."""
        version, request, _domain, address, _identity, mechanism, *credentials = question
        name = None
        if version == b"1.0" and mechanism == b"CURVE" and credentials:
            key = z85(credentials[0])
            name = self._name_of(key)
            if name is None:
                self._complain(f"{address.decode(errors='replace')} with the key {key.decode()}, which is not allowed")
        if name is None:
            return [b"1.0", request, b"400", b"this key is not allowed here", b"", b""]
        return [b"1.0", request, b"200", b"OK", name.encode(), b""]

    def _name_of(self, key: bytes) -> str | None:
        """The name a key is allowed under; None where there is none, or several."""
        names = []
        for path in self._allowed.glob(f"*{PUBLIC_SUFFIX}"):
            try:
                public, _ = zmq.auth.load_certificate(path)
            except (OSError, ValueError) as fault:
                self._complain(f"callers with the key of {path}, which holds no public key ({fault})")
                continue
            if public == key:
                names.append(path.name.removesuffix(PUBLIC_SUFFIX))
        if len(names) > 1:
            several = " and ".join(sorted(names))
            self._complain(
                f"the key {key.decode()}: it is allowed as {several} in {self._allowed}; each process needs a key "
                "of its own: make others with `shardmq keys create`"
            )
        return names[0] if len(names) == 1 else None

    def _note_failure(self, event: Any) -> None:
        reason = _FAILURES.get(event["event"])
        if reason is not None:
            self._complain(f"a caller of {event['endpoint'].decode(errors='replace')}: {reason}")

    def _complain(self, whom: str) -> None:
        now = time.monotonic()
        if now - self._complaints.get(whom, -COMPLAINT_SECONDS) < COMPLAINT_SECONDS:
            return
        if len(self._complaints) >= COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[whom] = now
        _log.warning("the bus turns away %s", whom)


def role_of(name: str) -> str:
    """The role that a process of this name has, on one host or on one of several."""
    process = name.rpartition(".")[2]
    if process == COORDINATOR:
        return COORDINATOR
    return SHARD if _SHARD_NAME.fullmatch(process) else GATEWAY


def process_name(host: str, process: str) -> str:
    """The name of a process on one of several hosts, as `a.shard-0`; without a host, as `shard-0`."""
    return f"{host}.{process}" if host else process


def may_replicate(name: str, other: str) -> bool:
    """Whether two names are of replicas of one group, on different hosts."""
    (host, _, group), (other_host, _, other_group) = name.rpartition("."), other.rpartition(".")
    return group == other_group and role_of(name) != GATEWAY and bool(host and other_host) and host != other_host


def guard_of(context: "zmq.Context[zmq.Socket[bytes]]", address: str) -> CurveGuard | None:
    """The guard of a link to a TCP address; None where it needs none. Keys are read when the first link needs them.

    Raises:
        StartupRefused: there are no keys, and the options do not say that none are needed.
    """
    if isinstance(context, Context):
        security = context.security
        if security.folder is not None:
            context.guard = context.guard or CurveGuard(context, security.folder, security.name)
            return context.guard
        if security.is_insecure and is_loopback(address):
            return None
    raise StartupRefused(
        f"{address}: everybody who reaches a TCP address could read and write all messages; make keys "
        "(`shardmq keys create`) and give --keys, or --insecure-bus for loopback addresses, or use ipc:// addresses"
    )


def create_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a process's pair of keys, and allow its public key in this folder.

    Returns:
        The files of the public and of the secret key.

    Raises:
        StartupRefused: the pair exists already, or the folder cannot be written.
    """
    allowed = folder / ALLOWED
    secret_path, public_path = folder / f"{name}{SECRET_SUFFIX}", allowed / f"{name}{PUBLIC_SUFFIX}"
    for path in (secret_path, public_path):
        if path.exists():
            raise StartupRefused(
                f"{path} is there already; choose another name, or remove the file if no process uses it"
            )
    mask = os.umask(0o077)  # the secret must not be readable by others for a moment either
    try:
        allowed.mkdir(parents=True, exist_ok=True)
        public, secret = zmq.auth.create_certificates(folder, name)
        Path(public).rename(public_path)
    except OSError as fault:
        raise StartupRefused(f"keys cannot be written in {folder}: {fault.strerror}") from fault
    finally:
        os.umask(mask)
    public_path.chmod(0o644)
    return public_path, Path(secret)


def held(folder: Path) -> list[dict[str, Any]]:
    """The keys in a folder: `{"name", "role", "public_key", "allowed", "secret"}`, the last two whether there is one.

    Raises:
        StartupRefused: a file holds no key.
    """
    allowed = {path.name.removesuffix(PUBLIC_SUFFIX): path for path in (folder / ALLOWED).glob(f"*{PUBLIC_SUFFIX}")}
    secret = {path.name.removesuffix(SECRET_SUFFIX): path for path in folder.glob(f"*{SECRET_SUFFIX}")}
    rows = []
    for name in sorted({*allowed, *secret}):
        path = allowed.get(name) or secret[name]
        try:
            public, _ = zmq.auth.load_certificate(path)
        except (OSError, ValueError) as fault:
            raise StartupRefused(f"{path} holds no key: {fault}; remove it, or copy the key there") from fault
        rows.append(
            {
                "name": name,
                "role": role_of(name),
                "public_key": public.decode(),
                "allowed": name in allowed,
                "secret": name in secret,
            }
        )
    return rows


def _load_pair(folder: Path, name: str) -> tuple[bytes, bytes]:
    path = folder / f"{name}{SECRET_SUFFIX}"
    try:
        status = path.stat()
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or status.st_uid not in (os.geteuid(), 0):
            raise StartupRefused(f"{path} can be read or written by others; `chmod 600 {path}`, and own it")
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as fault:
        raise StartupRefused(
            f"the keys of {name} cannot be read: {fault}; `shardmq keys create {name} --dir {folder}` makes them"
        ) from fault
    if secret is None:
        raise StartupRefused(
            f"{path} has no secret key; remove it, and `shardmq keys create {name} --dir {folder}` makes a pair"
        )
    return public, secret
