"""Who may come in: users and their passwords, virtual hosts and permissions, limits of connections."""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from shardmq.errors import AuthenticationFailed, ConnectionFault, ReplyCode, RequestError
from shardmq.gateway.hub import Hub
from shardmq.gateway.shardlink import Outcome
from shardmq.limits import NAME_BYTES_MAX
from shardmq.passwords import hash_password, verify_password

LOOPBACK_ONLY: Final = frozenset({"guest"})
"""Users with a password everybody knows; RabbitMQ's `loopback_users`."""

COMPLAINTS_MAX: Final = 10
"""Refused logins logged between two checks of silence; the others are counted. Whoever guesses fills no disk."""

Then = Callable[[ConnectionFault | None], None]
"""Called once: with nothing, or with what was wrong."""

_log = logging.getLogger(__name__)


class Login(NamedTuple):
    """Who wants to come in, and where to.

    Attributes:
        password: None where the client has shown who it is by other means (a certificate).
    """

    user: str
    password: str | None
    vhost: str = ""


class Logins:
    """See the module.

    Args:
        hub: of the process.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._complaints = 0
        self._under_way: set[asyncio.Task[None]] = set()
        # Checking a password takes 50 ms on purpose; one that was right is remembered as a keyed hash.
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, bytes] = {}

    def let_in(self, peer: str, login: Login, then: Then) -> None:
        """Find out whether a client may come in and open that virtual host."""

        async def check() -> None:
            await self._check_user(peer, login)
            await self._check_vhost(login)

        self._begin(check, peer, login, then)

    def authenticate(self, peer: str, login: Login, then: Then) -> None:
        """Find out whether a client is who it says; where it may go is another question (`admit`)."""
        self._begin(lambda: self._check_user(peer, login), peer, login, then)

    def admit(self, peer: str, login: Login, then: Then) -> None:
        """Find out whether a client that is known may open that virtual host."""
        self._begin(lambda: self._check_vhost(login), peer, login, then)

    def rest(self) -> None:
        """To be called about once a second: what was too much to be logged is summed up."""
        if self._complaints > COMPLAINTS_MAX:
            _log.warning("%d more logins were refused", self._complaints - COMPLAINTS_MAX)
        self._complaints = 0

    def _begin(self, check: Callable[[], Awaitable[None]], peer: str, login: Login, then: Then) -> None:
        async def run() -> None:
            fault: ConnectionFault | None = None
            try:
                await check()
            except ConnectionFault as refused:
                fault = refused
                self.complain(peer, login.user, refused.text)
            then(fault)

        task = asyncio.create_task(run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def complain(self, peer: str, user: str, text: str) -> None:
        """Log why somebody was not let in; clients are not always told."""
        self._complaints += 1
        if self._complaints <= COMPLAINTS_MAX:
            shown = text if text.isprintable() else repr(text)  # names are the client's; one line each
            _log.warning("login of user %r from %s refused: %s", user[:NAME_BYTES_MAX], peer, shown)

    async def _check_user(self, peer: str, login: Login) -> None:
        name = login.user
        user = self._hub.topology.users.get(name)
        if login.password is not None:
            await self._check_password(name, login.password, user.password if user is not None else "")
        elif user is None:
            raise AuthenticationFailed(f"user '{name[:NAME_BYTES_MAX]}' of the client's certificate is not known")
        if name in LOOPBACK_ONLY and not _is_loopback(peer):
            raise AuthenticationFailed(f"user '{name}' may connect from this machine only; make a user of your own")

    async def _check_password(self, name: str, password: str, stored: str) -> None:
        proof = hmac.digest(self._key, f"{stored}\0{password}".encode(errors="surrogateescape"), hashlib.sha256)
        if not hmac.compare_digest(self._verified.get(name, b""), proof):
            if not await asyncio.to_thread(_is_password, password, stored):
                raise AuthenticationFailed(f"user '{name[:NAME_BYTES_MAX]}' is not known, or the password is wrong")
            self._verified[name] = proof

    async def _check_vhost(self, login: Login) -> None:
        """Whether the user may open the virtual host, and neither has its limit of connections reached."""
        topology, name, vhost = self._hub.topology, login.user, login.vhost
        self._check_access(name, vhost)
        if any("max-connections" in limits for limits in (topology.vhosts[vhost].limits, topology.users[name].limits)):
            admitted: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self._hub.coordinator.admit(vhost, name, admitted.set_result)
            outcome = await admitted
            if isinstance(outcome, RequestError):
                raise AuthenticationFailed(outcome.text, ReplyCode.NOT_ALLOWED)
            self._check_access(name, vhost)  # again: it took a while

    def _check_access(self, name: str, vhost: str) -> None:
        topology = self._hub.topology
        if vhost not in topology.vhosts:
            raise AuthenticationFailed(f"vhost {vhost[:NAME_BYTES_MAX]} not found", ReplyCode.NOT_ALLOWED)
        if name not in topology.users or (name, vhost) not in topology.permissions:
            raise AuthenticationFailed(f"access to vhost '{vhost}' refused for user '{name}'", ReplyCode.NOT_ALLOWED)


def _is_password(password: str, stored: str) -> bool:
    """Whether it is a user's password; takes as long for a user who is not known (""), or whose hash is a quick one, so
    that nobody learns which names exist."""
    if stored and verify_password(password, stored):
        return True
    if not stored.startswith("scrypt$"):
        hash_password(password)
    return False


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
