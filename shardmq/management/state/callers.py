"""Whoever asks over HTTP, as a client of the broker: their own login, kept for a while.

    a request ──► Callers.borrow(credentials) ──► Caller ──► administration()   in no virtual host: lists, users, …
                                                    └──────► channel(vhost)     declare, publish, get in one

The broker checks every password. A login is kept IDLE_SECONDS after its last request, and the gateway ends it when its
user is changed or deleted.
"""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from shardmq.client.aio.channel import Channel
from shardmq.client.aio.connection import Connection, abandon, connect_to_living
from shardmq.errors import AuthenticationFailed, ConnectionLost, ReplyCode, ShardmqError, Unavailable
from shardmq.management.findings.looks import Looks
from shardmq.version import VERSION

IDLE_SECONDS: Final = 30.0
"""How long a login without requests is kept: a page that asks every five seconds logs in once."""

SWEEP_SECONDS: Final = 5.0

CALLERS_MAX: Final = 256
"""Logins kept at once; past it, the one that was idle longest goes. Each takes some 40 KB here and a socket there."""

CONNECTIONS_MAX: Final = 512
"""Connections of all callers together, each to one virtual host or none."""

LOGINS_MAX: Final = 64
"""Logins under way at once: the broker answers wrong ones late, so that guessing is slow."""

LOGINS_OF_PEER_MAX: Final = 32
"""Of them, from one address."""

PROPERTIES: Final = {"product": "shardmq-management", "version": VERSION, "serves": "http"}
"""What lists of connections show of those of this process, and why the broker's totals leave them out."""

TIMEOUT_SECONDS: Final = 15.0
"""For a login, or for an answer; wrong passwords may take ten seconds."""

SIGN_SECONDS: Final = 1.2
"""For a gateway's sign of life, before a login."""

PING_SECONDS: Final = 1.0
"""For a gateway's answer to what it answers by itself: one that hangs is left, and another one asked."""

LATE_SECONDS: Final = 0.1
"""More, for what has come while this process did something else."""

WATCH_SECONDS: Final = 0.4
"""Between two looks whether the gateways of those who wait for an answer live."""


class Credentials(NamedTuple):
    """A user and a password."""

    user: str
    password: str


class Caller:
    """One login, and its connections.

    Args:
        callers: that keep it.
        credentials: that the broker checks.

    Attributes:
        user: its name.
        requests: how many are under way.
        is_forgotten: whether it is closed behind its requests.
        used_at: monotonic time of the last request's end.
    """

    def __init__(self, callers: "Callers", credentials: Credentials) -> None:
        self.user = credentials.user
        self.requests = 0
        self.is_forgotten = False
        self.used_at = time.monotonic()
        self._callers = callers
        self._credentials = credentials
        self._connections: dict[str, Connection] = {}
        self._channels: dict[str, Channel] = {}
        self._lock = asyncio.Lock()
        self._missed: tuple[float, str] | None = None  # when no gateway lived, and what was said of that
        self._looking: asyncio.Task[None] | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of its user, from the login."""
        connection = self._connections.get("")
        return () if connection is None else tuple(connection.server_properties["tags"])

    @property
    def looks(self) -> Looks:
        """What was found wrong with the broker, of what its user may see; ask the broker to let it in before."""
        return self._callers.looks_of(self.user)

    @property
    def connections(self) -> int:
        """How many connections it has."""
        return len(self._connections)

    @property
    def is_logged_in(self) -> bool:
        """Whether the broker has let it in, and has not ended that."""
        connection = self._connections.get("")
        return connection is not None and connection.is_open

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep it logged in for work that goes on where its request ends, as others wait for the answer."""
        self.requests += 1
        try:
            yield
        finally:
            self._callers.give_back(self)

    def look(self) -> None:
        """Find out whether its gateways live, while somebody waits for their answers."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self.leave_silent())

    async def leave_silent(self) -> None:
        """Give up connections to gateways that hang: who waits for an answer is told, and the next one asks another."""
        there = list(self._connections.items())
        lives = await asyncio.gather(*(_answers(connection) for _, connection in there))
        for (vhost, connection), is_alive in zip(there, lives, strict=True):
            if not is_alive and self._connections.get(vhost) is connection:
                del self._connections[vhost]
                self._channels.pop(vhost, None)
                abandon(connection, f"it has not answered for {PING_SECONDS:g} s")

    def forget_others(self, user: str) -> None:
        """Have a user log in again: password or tags were changed, or the user deleted."""
        self._callers.forget(user)

    async def administration(self) -> Connection:
        """A connection in no virtual host.

        Raises:
            AuthenticationFailed: user or password are wrong, or the user has no tag.
            ConnectionLost: nobody answers there.
            Unavailable: too many logins are under way, or too many connections are open.
        """
        return await self._connected("")

    async def channel(self, vhost: str) -> Channel:
        """A channel in a virtual host, for requests; it is shared.

        Raises:
            AuthenticationFailed: there is no such virtual host, the user has no permission there, or too many
                connections.
            ConnectionLost: nobody answers there.
            Unavailable: too many logins are under way, or too many connections are open.
        """
        channel = self._channels.get(vhost)
        connection = await self._connected(vhost)
        if channel is None or not channel.is_open:
            channel = self._channels[vhost] = await connection.channel()
        return channel

    async def own_channel(self, vhost: str) -> Channel:
        """A channel in a virtual host of the request's own, which closes it."""
        return await (await self._connected(vhost)).channel()

    async def _connected(self, vhost: str) -> Connection:
        connection = self._connections.get(vhost)
        if connection is not None and connection.is_open:
            return connection
        begun = time.monotonic()
        async with self._lock:
            connection = self._connections.get(vhost)
            if connection is None or not connection.is_open:
                if self._missed is not None and self._missed[0] > begun:  # who waits together is told together
                    raise ConnectionLost(self._missed[1])
                self._channels.pop(vhost, None)
                try:
                    connection = await self._callers.connect(self._credentials, vhost)
                except ConnectionLost as fault:
                    self._missed = time.monotonic(), fault.text
                    raise
                self._connections[vhost] = connection
            return connection

    async def close(self) -> None:
        """Close its connections."""
        connections, self._connections = list(self._connections.values()), {}
        self._channels.clear()
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)


class Callers:
    """The logins of all who ask.

    Args:
        url: of the broker; its user and virtual host do not matter.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._key = secrets.token_bytes(32)
        self._callers: dict[bytes, Caller] = {}
        self._looks: dict[str, Looks] = {}
        self._logins = 0
        self._guesses: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def borrow(self, credentials: Credentials, peer: str = "") -> AsyncIterator[Caller]:
        """The caller with these credentials, logged in, for one request of that address.

        Raises:
            AuthenticationFailed: user or password are wrong, or the user has no tag.
            ConnectionLost: nobody answers there.
            Unavailable: too many logins are under way, or too many connections are open.
        """
        key = hmac.digest(self._key, "\0".join(credentials).encode(errors="surrogateescape"), hashlib.sha256)
        caller = self._callers.get(key)
        is_new = caller is None
        if caller is None:
            caller = Caller(self, credentials)
        caller.requests += 1
        try:
            if caller.is_logged_in and time.monotonic() - caller.used_at > PING_SECONDS:
                await caller.leave_silent()
            if not caller.is_logged_in:
                await self._log_in(caller, peer)
            if is_new:
                caller = self._keep(key, caller)
            yield caller
        finally:
            self.give_back(caller)

    def give_back(self, caller: Caller) -> None:
        """A request of a caller is answered."""
        caller.requests -= 1
        caller.used_at = time.monotonic()
        if caller.requests:
            return
        if caller.is_forgotten:
            self._close(caller)
        elif not caller.is_logged_in:
            for key in [key for key, other in self._callers.items() if other is caller]:
                self._drop(key)

    async def _log_in(self, caller: Caller, peer: str) -> None:
        """Have the broker check a caller; who guesses passwords must not keep others waiting."""
        if self._guesses[peer] >= LOGINS_OF_PEER_MAX:
            raise Unavailable(f"{LOGINS_OF_PEER_MAX} logins from {peer} wait already; try again in a few seconds")
        self._guesses[peer] += 1
        try:
            await caller.administration()
        finally:
            self._guesses[peer] -= 1
            self._guesses += Counter()  # drops what is 0

    def monitor(self) -> Caller | None:
        """Somebody who is logged in and sees everything, if there is one."""
        seeing = (caller for caller in self._callers.values() if caller.is_logged_in)
        return next((caller for caller in seeing if {"administrator", "monitoring"} & set(caller.tags)), None)

    def forget(self, user: str) -> None:
        """Have a user log in again: password or tags were changed, or the user deleted.

        Who is asking goes on until that is answered.
        """
        for key in [key for key, caller in self._callers.items() if caller.user == user]:
            caller = self._callers[key]
            if caller.requests:
                del self._callers[key]
                caller.is_forgotten = True
            else:
                self._drop(key)

    async def connect(self, credentials: Credentials, vhost: str) -> Connection:
        """Open a connection; "" is an administrative one.

        Raises:
            AuthenticationFailed: the broker refuses.
            ConnectionLost: nobody answers there.
            Unavailable: too many logins are under way, or too many connections are open.
        """
        if not credentials.user:  # the broker would take the certificate of this process for the caller's
            raise AuthenticationFailed("no user is named", ReplyCode.ACCESS_REFUSED)
        if self._logins >= LOGINS_MAX:
            raise Unavailable(f"{LOGINS_MAX} logins wait for the broker already; try again in a few seconds")
        if sum(caller.connections for caller in self._callers.values()) >= CONNECTIONS_MAX and not self._make_room():
            raise Unavailable(f"{CONNECTIONS_MAX} connections of callers are in use; try again in a few seconds")
        self._logins += 1
        try:
            url = url_for(self._url, credentials, vhost)
            return await connect_to_living(url, TIMEOUT_SECONDS, SIGN_SECONDS, not vhost, PROPERTIES)
        finally:
            self._logins -= 1

    def looks_of(self, user: str) -> Looks:
        """The looks of a user, which outlive a login: scrapes may be a minute apart."""
        looks = self._looks[user] = self._looks.pop(user) if user in self._looks else Looks()
        if len(self._looks) > CALLERS_MAX:
            del self._looks[next(iter(self._looks))]
        return looks

    async def watch(self) -> None:
        """Find those whose gateway hangs while they wait for an answer, for ever; a task of its own."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for caller in self._callers.values():
                if caller.requests and caller.connections:
                    caller.look()

    async def sweep(self) -> None:
        """Close logins that are idle, for ever; a task of its own."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            end = time.monotonic() - IDLE_SECONDS
            for key in [key for key, caller in self._idle() if caller.used_at < end]:
                self._drop(key)

    async def close(self) -> None:
        """Close all connections."""
        for key in list(self._callers):
            self._drop(key)
        await asyncio.gather(*self._closing)

    def _keep(self, key: bytes, caller: Caller) -> Caller:
        """Keep a caller that is logged in; where another request was first, that one's is as good."""
        there = self._callers.get(key)
        if there is None or not there.is_logged_in:
            if len(self._callers) >= CALLERS_MAX:
                self._make_room()
            self._callers[key] = caller
        elif there is not caller:
            self._close(caller)
            caller.requests, there.requests = caller.requests - 1, there.requests + 1
            return there
        return caller

    def _idle(self) -> list[tuple[bytes, Caller]]:
        return [(key, caller) for key, caller in self._callers.items() if not caller.requests]

    def _make_room(self) -> bool:
        """Close the login that was idle longest; returns whether there was one."""
        idle = self._idle()
        if idle:
            self._drop(min(idle, key=lambda entry: entry[1].used_at)[0])
        return bool(idle)

    def _drop(self, key: bytes) -> None:
        self._close(self._callers.pop(key))

    def _close(self, caller: Caller) -> None:
        task = asyncio.get_running_loop().create_task(caller.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _answers(connection: Connection) -> bool:
    """Whether the gateway of a connection answers; one that was lost otherwise is none that hangs."""

    async def ask() -> None:
        channel = await connection.channel()
        await channel.close()

    asking = asyncio.get_running_loop().create_task(ask())
    done, _ = await asyncio.wait((asking,), timeout=PING_SECONDS)
    if not done:  # where it is we who were late, the answer is here already
        done, _ = await asyncio.wait((asking,), timeout=LATE_SECONDS)
    if not done:
        asking.cancel()
        return False
    with contextlib.suppress(ShardmqError):  # it has answered that it cannot, or is closed, which others see
        asking.result()
    return True


def url_for(url: str, credentials: Credentials, vhost: str) -> str:
    """A URL of the broker with other credentials and another virtual host."""
    parts = urlsplit(url)
    hosts = parts.netloc.rpartition("@")[2]
    who = f"{quote(credentials.user, safe='')}:{quote(credentials.password, safe='', errors='surrogateescape')}"
    return urlunsplit(parts._replace(netloc=f"{who}@{hosts}", path="/" + quote(vhost, safe="")))
