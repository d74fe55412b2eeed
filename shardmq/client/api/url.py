"""Where to connect to: `shardmq://user:password@host:port/vhost`, with several hosts where there are several.

URLs of AMQP clients mean the same: `amqp://…` is `shardmq://…`, and `amqps://…` is `shardmqs://…`. A gateway takes both
protocols on one port; this library speaks the native one.

With TLS, `shardmqs://…`, files may be named behind a question mark, as RabbitMQ's clients have them (its URI query
parameters), each percent-encoded where it needs to be:

    cacertfile=authority.pem          whom to trust; the system's authorities otherwise
    certfile=me.pem, keyfile=me.key   the certificate to show; its key may be in the same file
    verify=verify_none                trust everybody: whoever answers gets the password
    server_name_indication=name       the name the broker's certificate has, where it is not the URL's
    auth_mechanism=external           log in by that certificate, without user and password
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlunsplit

from shardmq.errors import InvalidRequest
from shardmq.urls import PASSWORD_CUT, may_cut_password, shown_host, split_url

URL_VARIABLE: Final = "SHARDMQ_URL"
DEFAULT_URL: Final = "shardmq://guest:guest@127.0.0.1:5672/"

DEFAULT_PORT: Final = 5672
DEFAULT_TLS_PORT: Final = 5671

DEFAULT_VHOST: Final = "/"
"""`shardmq.topology.entities`'s. This file needs the standard library alone: Spark's executors have it from a zip."""

_FORM: Final = "shardmq://user:password@host:port/vhost"
_PORTS: Final = {
    "shardmq": DEFAULT_PORT,
    "amqp": DEFAULT_PORT,
    "shardmqs": DEFAULT_TLS_PORT,
    "amqps": DEFAULT_TLS_PORT,
}
_WITH_TLS: Final = ("shardmqs", "amqps")
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(?::(?P<port>\d+))?")
_QUERY: Final = frozenset({"cacertfile", "certfile", "keyfile", "verify", "server_name_indication", "auth_mechanism"})
_SAME: Final = {"cafile": "cacertfile"}
_VERIFY: Final = {"verify_peer": True, "verify_none": False}
_MECHANISMS: Final = ("plain", "external")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a URL says of TLS.

    Attributes:
        authorities: file with those to trust; None for the environment's or the system's.
        certificate: file with the one to show; None for the environment's or none.
        key: file with its key; None where that is in the certificate's file.
        is_verified: whether the broker's certificate matters at all.
        server_name: that the broker's certificate has; None for the URL's host.
    """

    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None
    is_verified: bool = True
    server_name: str | None = None


NO_FILES: Final = TlsFiles()


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """One place of a parsed URL.

    Attributes:
        host: name or address, IPv6 without brackets.
        port: 5672 when the URL has none, 5671 with TLS.
        user: guest when the URL has none; "" where the certificate says it.
        password: guest when the URL has none; it never shows in texts.
        vhost: no path, `/` and `/%2F` are the default one; `/name` is "name".
        tls: whether the URL is shardmqs:// or amqps://.
        files: of TLS.
    """

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    files: TlsFiles = NO_FILES

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    __repr__ = __str__


def given_or_default(url: str | Sequence[str] | None) -> str | Sequence[str]:
    """The URL that a program gave, else the environment's `SHARDMQ_URL`, else `DEFAULT_URL`."""
    return (os.environ.get(URL_VARIABLE) or DEFAULT_URL) if url is None else url


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


def addresses_of(url: str | Sequence[str] | None, administrative: bool = False) -> list[Address]:
    """Every address that a program gave, or the default ones; without a virtual host for an administrative session.

    Raises:
        InvalidRequest: a URL cannot be read.
    """
    addresses = parse_all(given_or_default(url))
    return [replace(address, vhost="") for address in addresses] if administrative else addresses


def with_files(url: str, files: Mapping[str, str]) -> str:
    """A URL that names files for TLS, by the names they have there, besides what it names already.

    Raises:
        InvalidRequest: it is no URL for TLS.
    """
    if not files:
        return url
    if not parse(url).tls:
        raise InvalidRequest("a certificate or authority is given, and the URL has no TLS; write it as shardmqs://…")
    parts = split_url(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query) if _SAME.get(name, name) not in files]
    query = "&".join(f"{name}={quote(value)}" for name, value in (*kept, *files.items()))
    return urlunsplit(parts._replace(query=query))


def with_vhost(url: str, vhost: str) -> str:
    """A URL that names this virtual host instead of its own."""
    return urlunsplit(split_url(url)._replace(path=f"/{quote(vhost, safe='')}"))


def _parse(url: str) -> list[Address]:
    try:
        parts = split_url(url)
    except ValueError as fault:
        raise InvalidRequest(f"the URL cannot be read ({fault}); write it as {_FORM}") from fault
    try:
        return _addresses(parts)
    except InvalidRequest:
        if may_cut_password(parts):
            raise InvalidRequest(f"the URL cannot be read: {PASSWORD_CUT}; its form is {_FORM}") from None
        raise


def _addresses(parts: SplitResult) -> list[Address]:
    if parts.scheme not in _PORTS:
        raise InvalidRequest(
            f"the URL begins with none of {', '.join(f'{scheme}://' for scheme in _PORTS)}; write it as {_FORM}"
        )
    if parts.fragment or "/" in parts.path[1:]:
        raise InvalidRequest(f"the URL has more than a virtual host behind its port; write it as {_FORM}")
    is_tls = parts.scheme in _WITH_TLS
    options = _query(parts.query, is_tls)
    files = _files(options)
    is_external = options.get("auth_mechanism") == "external"
    who, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = who.partition(":")
    addresses = []
    for host in hosts.split(","):
        name, port = _host(host, _PORTS[parts.scheme])
        addresses.append(
            Address(
                host=name,
                port=port,
                user="" if is_external else unquote(user) if who else "guest",
                password="" if is_external else unquote(password) if colon else "guest",
                vhost=unquote(parts.path[1:]) or DEFAULT_VHOST,
                tls=is_tls,
                files=files,
            )
        )
    return addresses


def _host(given: str, default_port: int) -> tuple[str, int]:
    """Name or address, and port, of one of a URL's hosts."""
    found = _HOST.fullmatch(given)
    if found is None:
        raise InvalidRequest(f"'{shown_host(given)}' is no host with a port; write the URL as {_FORM}")
    name = (found["six"] or found["name"]).lower()
    try:
        name.encode("idna")  # as it will be when its address is asked for
    except UnicodeError as fault:
        raise InvalidRequest(
            f"'{name}' cannot be a host's name, which has 1 to 63 characters between dots; write the URL as {_FORM}"
        ) from fault
    port = int(found["port"]) if found["port"] else default_port
    if port > 65_535:
        raise InvalidRequest(f"there is no port {port}; write the URL as {_FORM}")
    return name, port


def _query(query: str, is_tls: bool) -> dict[str, str]:
    """What stands behind the question mark, by name."""
    options: dict[str, str] = {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as fault:
        raise InvalidRequest(f"the URL cannot be read behind its '?' ({fault}); write it as {_FORM}") from fault
    for given, value in pairs:
        name = _SAME.get(given, given)
        if name not in _QUERY:
            raise InvalidRequest(
                f"'{given}' means nothing in a URL, whose form is {_FORM}; with TLS there may be "
                f"?{'=…&'.join(sorted(_QUERY))}=…"
            )
        if not is_tls:
            raise InvalidRequest(f"'{given}' is for TLS: write the URL as {_FORM.replace('shardmq:', 'shardmqs:')}")
        if name in options or not value:
            raise InvalidRequest(f"the URL has {'more than one' if value else 'an empty'} '{given}'; name one")
        options[name] = value
    return options


def _files(options: Mapping[str, str]) -> TlsFiles:
    verify, mechanism = options.get("verify", "verify_peer"), options.get("auth_mechanism", "plain")
    if verify not in _VERIFY:
        raise InvalidRequest(f"verify={verify} means nothing in a URL; it is {' or '.join(_VERIFY)}")
    if mechanism not in _MECHANISMS:
        raise InvalidRequest(f"auth_mechanism={mechanism} means nothing in a URL; it is {' or '.join(_MECHANISMS)}")
    if "keyfile" in options and "certfile" not in options:
        raise InvalidRequest("the URL has a keyfile and no certfile; name the certificate that the key is for")
    return TlsFiles(
        options.get("cacertfile"),
        options.get("certfile"),
        options.get("keyfile"),
        _VERIFY[verify],
        options.get("server_name_indication"),
    )
