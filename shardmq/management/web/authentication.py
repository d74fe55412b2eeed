"""Who asks: RabbitMQ's Basic authentication, or the cookie of the page. The broker itself checks the password.

The user whose password everybody knows comes from this machine alone: the broker sees logins of this process, so that
rule is kept here, too.
"""

import base64
import binascii
import ipaddress
from typing import Final

from aiohttp import hdrs, web

from shardmq.management.state.callers import Credentials
from shardmq.management.state.sessions import Sessions
from shardmq.management.web.errors import LOGIN_FAILED, REFUSED_LOGIN, ApiError
from shardmq.topology.entities import LOOPBACK_ONLY

CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="RabbitMQ Management"'}
"""RabbitMQ's realm: clients look up their password by it, such as nagios-plugins-rabbitmq."""

CREDENTIALS_BYTES_MAX: Final = 4096

COOKIE: Final = "shardmq"

PAGE_HEADER: Final = "X-Shardmq-Page"
"""What the page sends with each request. Forms of other sites cannot, so a cookie alone changes nothing."""

USER: Final = "user"
"""Of a request: who it says it is of, once that is read."""

CROSS_SITE: Final = "a page of another site sent this; nothing is changed"

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def refused(reason: str = LOGIN_FAILED) -> ApiError:
    """The answer to a request without a login, or with a wrong one."""
    return ApiError(401, REFUSED_LOGIN, reason, CHALLENGE)


def credentials_of(request: web.Request, sessions: Sessions) -> Credentials:
    """The user and the password that a request names, or those of its session.

    Raises:
        ApiError: it names none, or a user that only comes from this machine; or it would change something and may
            come from another site.
    """
    credentials = _basic(request.headers.get("Authorization", "")) or of_session(request, sessions)
    if credentials is None or not credentials.user:
        raise refused()
    request[USER] = credentials.user
    if request.method not in SAFE_METHODS:
        check_site(request)
    check_source(request, credentials)
    return credentials


def check_site(request: web.Request) -> None:
    """Make sure that no other site's form changes something by what the browser remembers, or logs somebody in.

    A browser says where a form comes from (Fetch, section 3.2), and sends a password that it was once asked for with
    whatever form; the page's header it sends for scripts of this site alone. Programs say nothing of it.

    Raises:
        ApiError: another site's page sends this.
    """
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and PAGE_HEADER not in request.headers and origin.partition("://")[2] != request.host:
        raise ApiError(403, "forbidden", CROSS_SITE)


def check_source(request: web.Request, credentials: Credentials) -> None:
    """Make sure that a user may come from where the request comes from.

    Raises:
        ApiError: the user only comes from this machine.
    """
    if credentials.user in LOOPBACK_ONLY and not is_loopback(request.remote or ""):
        raise refused(f"user '{credentials.user}' can only connect via localhost")


def of_session(request: web.Request, sessions: Sessions) -> Credentials | None:
    """Whose session the request's cookie names; None where it names none.

    Raises:
        ApiError: it would change something, and may come from another site.
    """
    credentials = sessions.find(request.cookies.get(COOKIE, ""))
    if credentials is not None:
        request[USER] = credentials.user
    if credentials is not None and request.method not in SAFE_METHODS and PAGE_HEADER not in request.headers:
        raise ApiError(403, "forbidden", f"a cookie alone changes nothing; send the header {PAGE_HEADER}, too")
    return credentials


def _basic(header: str) -> Credentials | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(encoded) > CREDENTIALS_BYTES_MAX:
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    user, colon, password = text.partition(":")
    return Credentials(user, password) if colon else None


def is_loopback(peer: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(peer.split("%", maxsplit=1)[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
