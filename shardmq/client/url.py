"""Where to connect to: `shardmq://user:password@host:port/vhost`, with several hosts where there are several."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from shardmq.errors import InvalidRequest

DEFAULT_PORT: Final = 5672
DEFAULT_TLS_PORT: Final = 5671

DEFAULT_VHOST: Final = "/"
"""`shardmq.model`'s. This file needs the standard library alone: Spark's executors have it from a zip."""

_FORM: Final = "shardmq://user:password@host:port/vhost"
_PORTS: Final = {"shardmq": DEFAULT_PORT, "shardmqs": DEFAULT_TLS_PORT}
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(?::(?P<port>\d+))?")


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """One place of a parsed URL.

    Attributes:
        host: name or address, IPv6 without brackets.
        port: 5672 when the URL has none, 5671 with TLS.
        user: guest when the URL has none.
        password: guest when the URL has none; it never shows in texts.
        vhost: no path, `/` and `/%2F` are the default one; `/name` is "name".
        tls: whether the URL is shardmqs://.
    """

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    __repr__ = __str__


def parse(url: str) -> Address:
    """The first address of a URL.

    Raises:
        InvalidRequest: it is not of the form shardmq://user:password@host:port/vhost.
    """
    return parse_all(url)[0]


def parse_all(urls: str | Sequence[str]) -> list[Address]:
    """Every address of one URL, whose hosts stand between commas, or of several URLs.

    Raises:
        InvalidRequest: as `parse`, or there is none.
    """
    if isinstance(urls, str):
        return _parse(urls)
    addresses = [address for url in urls for address in _parse(url)]
    if not addresses:
        raise InvalidRequest(f"there is no URL to connect to; give at least one, as {_FORM}")
    return addresses


def _parse(url: str) -> list[Address]:
    try:
        parts = urlsplit(url)
    except ValueError as fault:
        raise InvalidRequest(f"the URL cannot be read ({fault}); write it as {_FORM}") from fault
    if parts.scheme not in _PORTS:
        raise InvalidRequest(f"the URL begins with neither shardmq:// nor shardmqs:// (TLS); write it as {_FORM}")
    if parts.query or parts.fragment or "/" in parts.path[1:]:
        raise InvalidRequest(f"the URL has more than a virtual host behind its port; write it as {_FORM}")
    who, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = who.partition(":")
    addresses = []
    for host in hosts.split(","):
        found = _HOST.fullmatch(host)
        if found is None:
            raise InvalidRequest(f"'{host}' is no host with a port; write the URL as {_FORM}")
        port = int(found["port"]) if found["port"] else _PORTS[parts.scheme]
        if port > 65_535:
            raise InvalidRequest(f"there is no port {port}; write the URL as {_FORM}")
        addresses.append(
            Address(
                host=(found["six"] or found["name"]).lower(),
                port=port,
                user=unquote(user) if who else "guest",
                password=unquote(password) if colon else "guest",
                vhost=unquote(parts.path[1:]) or DEFAULT_VHOST,
                tls=parts.scheme == "shardmqs",
            )
        )
    return addresses
