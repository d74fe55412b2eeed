"""Logins: users and their passwords, virtual hosts and permissions, limits of connections.

A password waits its turn (login_queue.py), and is compared with the user's hash (password_hashing.py). Where it is
wrong, the answer is delayed (failed_logins.py). A right password is remembered for a while as a keyed hash, and is not
compared again meanwhile.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from shardmq.bus.coordinator_link import Outcome
from shardmq.errors import AuthenticationFailed, ConnectionFault, ConnectionLost, ReplyCode, RequestError, Unavailable
from shardmq.gateway.authentication.failed_logins import FailedLogins, Who, who
from shardmq.gateway.authentication.login_queue import WAIT_SECONDS_MAX, LoginQueue, too_many
from shardmq.gateway.authentication.password_hashing import PasswordHashing
from shardmq.gateway.authentication.refused_logins import RefusedLogins
from shardmq.gateway.events.clients import ConnectionInfo
from shardmq.gateway.state.gateway import GatewayState
from shardmq.limits import HANDSHAKE_SECONDS, NAME_BYTES_MAX
from shardmq.topology.entities import LOOPBACK_ONLY, MANAGEMENT_TAGS
from shardmq.topology.parameters.shovel import RUNNER, RUNNER_SECRET
from shardmq.topology.passwords import password_bytes

REMEMBERED_SECONDS: Final = 3600.0
REMEMBERED_MAX: Final = 4096
"""How long, and how many, right passwords are remembered: comparing one with its hash takes 50 ms on purpose."""

AMQP: Final = "amqp091"
NATIVE: Final = "shardmq"
HTTP: Final = "http"
"""Protocols, as counts of logins name them."""

_log = logging.getLogger(__name__)

Then = Callable[[ConnectionFault | None], None]
"""Called once: with nothing, or with what was wrong."""


class Credentials(NamedTuple):
    """The user and password of a login, and the virtual host to open.

    Attributes:
        password: None where the client was identified by its certificate.
    """

    user: str
    password: str | None
    vhost: str = ""


class _Known(NamedTuple):
    """A password that was right: the hash it was compared with, its keyed hash, and when that was."""

    stored: str
    proof: bytes
    since: float


class Authenticator:
    """Checks users and their passwords, virtual hosts and permissions, limits of connections.

    Args:
        state: of the gateway.
    """

    def __init__(self, state: GatewayState) -> None:
        self._state = state
        self._refused_logins = RefusedLogins()
        self._under_way: set[asyncio.Task[None]] = set()
        self._failed_logins = FailedLogins()
        self._login_queue = LoginQueue(self._failed_logins)
        self._hashing = PasswordHashing(self._failed_logins, self._stored_of, self._is_known, self._remember)
        self._key = secrets.token_bytes(32)
        self._runner_secret = os.environ.get(RUNNER_SECRET, "")
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._delayed = 0
        self._logins = {protocol: {"succeeded": 0, "failed": 0} for protocol in (AMQP, NATIVE, HTTP)}

    @property
    def is_broker_ready(self) -> bool:
        """Whether the coordinator and all shards are reached; clients are told before they log in."""
        return self._state.is_ready

    @property
    def logins(self) -> dict[str, dict[str, int]]:
        """By protocol, how many logins succeeded and failed since the start."""
        return self._logins

    @property
    def counts(self) -> dict[str, int]:
        """Counts for the status.

        Logins refused and, of those, answered late, since the start; passwords that are now waiting for their turn, or
        for the end of their delay.
        """
        return {
            "logins_refused": self._refused_logins.count,
            "logins_delayed": self._delayed,
            "logins_waiting": self._login_queue.waiting + self._login_queue.places,
        }

    def let_in(
        self, connection: ConnectionInfo, login: Credentials, then: Then, protocol: str = NATIVE, growth: int = 0
    ) -> None:
        """Check a client's password, and that it may open the virtual host; "" is an administrative session.

        A client that has heard of more growth of topics than this gateway waits until the gateway has, too.

        Args:
            connection: the client's.
            login: what it gave.
            then: is told.
            protocol: that the login is counted for.
            growth: that the client has heard of.
        """

        async def check() -> None:
            await self._check_user(connection, login)
            if login.vhost:
                await self._check_vhost(login, growth)
            else:
                self._check_tags(login.user)

        self._begin(check, connection.peer, login, self._counted(protocol, then))

    def authenticate(self, connection: ConnectionInfo, login: Credentials, then: Then) -> None:
        """Check a client's password; `admit` checks the virtual host."""
        self._begin(lambda: self._check_user(connection, login), connection.peer, login, self._counted(AMQP, then))

    def admit(self, peer: str, login: Credentials, then: Then) -> None:
        """Check that an authenticated client may open the virtual host."""
        self._begin(lambda: self._check_vhost(login), peer, login, then)

    def tick(self, now: float) -> None:
        """Sum up refused logins; called about once a second."""
        self._refused_logins.tick(now)

    def close(self) -> None:
        """Log what was not logged: there are no more logins."""
        self._refused_logins.sum_up()

    def complain(self, peer: str, user: str, text: str) -> None:
        """Log why a login was refused; clients are not always told."""
        self._refused_logins.add(peer, user, text)

    def _counted(self, protocol: str, then: Then) -> Then:
        def counted(fault: ConnectionFault | None) -> None:
            self._logins[protocol]["succeeded" if fault is None else "failed"] += 1
            then(fault)

        return counted

    def _begin(self, check: Callable[[], Awaitable[None]], peer: str, login: Credentials, then: Then) -> None:
        async def run() -> None:
            fault: ConnectionFault | None = None
            try:
                await check()
            except ConnectionFault as refused:
                fault = refused
                self.complain(peer, login.user, refused.text)
            except Exception:  # noqa: BLE001  nobody is let in yet: what a stranger says ends nothing
                _log.exception("the login of user %r from %s could not be checked", login.user[:NAME_BYTES_MAX], peer)
                text = "the login could not be checked; the log of the broker says why"
                fault = AuthenticationFailed(text, ReplyCode.INTERNAL_ERROR)
            then(fault)

        task = asyncio.create_task(run())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _check_user(self, connection: ConnectionInfo, login: Credentials) -> None:
        events, user = self._state.events, login.user[:NAME_BYTES_MAX]
        try:
            await self._check_credentials(connection.peer, login)
        except ConnectionFault as refused:
            events.refused(connection, user, refused.text)
            raise
        events.logged_in(connection, user)

    async def _check_credentials(self, peer: str, login: Credentials) -> None:
        name = login.user
        if name == RUNNER:
            self._check_runner(login.password or "")
            return
        if name in LOOPBACK_ONLY and not _is_loopback(peer):
            raise AuthenticationFailed(f"user '{name}' may connect from this machine only; make a user of your own")
        if login.password is not None:
            await self._check_password(who(peer, name), login.password)
        elif not name:
            raise AuthenticationFailed(
                "no user is named, and no certificate that was verified; log in with user and password, or over TLS "
                "with a certificate of the authorities that the broker was given (--tls-ca)"
            )
        elif name not in self._state.topology.users:
            raise AuthenticationFailed(f"user '{name[:NAME_BYTES_MAX]}' of the client's certificate is not known")

    def _check_runner(self, password: str) -> None:
        """Let the process in that runs shovels: the supervisor has given both of us the secret."""
        secret = password_bytes(self._runner_secret)
        if not secret or not hmac.compare_digest(password_bytes(password), secret):
            raise AuthenticationFailed(f"user '{RUNNER}' is not known, or the password is wrong")

    async def _check_password(self, who: Who, password: str) -> None:
        """Return at once where the password is right; raise when the delay is over where it is not."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        place = await self._login_queue.enter(who)
        delay = 0.0
        try:
            is_suspected = self._failed_logins.is_suspected(who)
            async with asyncio.timeout_at(began + (HANDSHAKE_SECONDS if is_suspected else WAIT_SECONDS_MAX)):
                is_right = await self._is_right(who, password, place.is_known)
            if is_right:
                self._failed_logins.succeeded(who)
                return
            delay = self._failed_logins.failed(who)
        except TimeoutError:
            raise too_many(who) from None
        finally:
            if delay:
                loop.call_later(delay, self._login_queue.leave, place)  # whether or not the client waits so long
            else:
                self._login_queue.leave(place)
        if delay:
            self._delayed += 1
            await asyncio.sleep(min(delay, began + HANDSHAKE_SECONDS - loop.time()))
        raise AuthenticationFailed(f"user '{who.user[:NAME_BYTES_MAX]}' is not known, or the password is wrong")

    async def _is_right(self, who: Who, password: str, is_trusted: bool) -> bool:
        """Compare a password with the one that is remembered, and with the hash where that does not decide.

        For strangers, a remembered password never decides that theirs is wrong: the quick answer would tell them that
        the user exists.
        """
        stored = self._stored_of(who.user)
        if self._is_known(who.user, stored, password):
            return True
        if is_trusted and who.user in self._known and self._known[who.user].stored == stored:
            return False
        return await self._hashing.is_right(who, password)

    def _stored_of(self, name: str) -> str:
        """A user's hash; "" where there is none."""
        user = self._state.topology.users.get(name)
        return "" if user is None else user.password

    def _proof(self, stored: str, password: str) -> bytes:
        return hmac.digest(self._key, password_bytes(f"{stored}\0{password}"), hashlib.sha256)

    def _is_known(self, name: str, stored: str, password: str) -> bool:
        """Whether the password was right a while ago, and still is."""
        known = self._known.get(name)
        if known is None or known.stored != stored:
            return False
        if time.monotonic() - known.since > REMEMBERED_SECONDS:
            del self._known[name]
            return False
        return hmac.compare_digest(known.proof, self._proof(stored, password))

    def _remember(self, name: str, stored: str, password: str) -> None:
        self._known.pop(name, None)
        self._known[name] = _Known(stored, self._proof(stored, password), time.monotonic())
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def _check_vhost(self, login: Credentials, growth: int = 0) -> None:
        """Check that the user may open the virtual host, and that neither has reached its limit of connections.

        The coordinator tells of growth before it answers.
        """
        topology, name, vhost = self._state.topology, login.user, login.vhost
        self._check_access(name, vhost)
        if name == RUNNER:
            return
        limits = topology.vhosts[vhost].limits, topology.users[name].limits
        if growth > topology.grown_to or any("max-connections" in limited for limited in limits):
            admitted: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            self._state.coordinator.admit(vhost, name, admitted.set_result)
            outcome = await admitted
            if isinstance(outcome, Unavailable) and growth > topology.grown_to:
                raise ConnectionLost(f"{outcome.text}; a topic has got partitions that this gateway does not know yet")
            if isinstance(outcome, RequestError):
                raise AuthenticationFailed(outcome.text, ReplyCode.NOT_ALLOWED)
            self._check_access(name, vhost)  # again: it took a while

    def _check_tags(self, name: str) -> None:
        user = self._state.topology.users.get(name)
        if name == RUNNER:
            return
        if user is None or MANAGEMENT_TAGS.isdisjoint(user.tags):
            raise AuthenticationFailed(
                f"an administrative session is refused for user '{name}': it takes one of the tags "
                f"{', '.join(sorted(MANAGEMENT_TAGS))}; open a virtual host instead",
                ReplyCode.NOT_ALLOWED,
            )

    def _check_access(self, name: str, vhost: str) -> None:
        topology = self._state.topology
        if vhost not in topology.vhosts:
            raise AuthenticationFailed(f"vhost {vhost[:NAME_BYTES_MAX]} not found", ReplyCode.NOT_ALLOWED)
        if name == RUNNER:
            return
        if name not in topology.users or (name, vhost) not in topology.permissions:
            raise AuthenticationFailed(f"access to vhost '{vhost}' refused for user '{name}'", ReplyCode.NOT_ALLOWED)


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
