"""Where to connect to: `shardmq://user:password@host:port/vhost`."""

from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from shardmq.errors import InvalidRequest
from shardmq.model import DEFAULT_VHOST

DEFAULT_PORT: Final = 5672
_FORM: Final = "shardmq://user:password@host:port/vhost"


class Address(msgspec.Struct, frozen=True):
    """A parsed URL.

    Attributes:
        host: name or address, IPv6 without brackets.
        port: 5672 when the URL has none.
        user: guest when the URL has none.
        password: guest when the URL has none; it never shows in texts.
        vhost: no path, `/` and `/%2F` are the default one; `/name` is "name".
    """

    host: str
    port: int
    user: str
    password: str
    vhost: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    __repr__ = __str__


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        InvalidRequest: it is not of the form shardmq://user:password@host:port/vhost.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as fault:
        raise InvalidRequest(f"the URL cannot be read ({fault}); write it as {_FORM}") from fault
    if parts.scheme != "shardmq":
        raise InvalidRequest(f"the URL does not begin with shardmq://; write it as {_FORM}")
    if not parts.hostname:
        raise InvalidRequest(f"the URL names no host; write it as {_FORM}")
    if parts.query or parts.fragment or "/" in parts.path[1:]:
        raise InvalidRequest(f"the URL has more than a virtual host behind its port; write it as {_FORM}")
    return Address(
        host=parts.hostname,
        port=DEFAULT_PORT if port is None else port,
        user="guest" if parts.username is None else unquote(parts.username),
        password="guest" if parts.password is None else unquote(parts.password),
        vhost=unquote(parts.path[1:]) or DEFAULT_VHOST,
    )
