"""Where etcd is: `etcds://user:password@h1:2379,h2:2379/prefix` with TLS, and `etcd://` without.

With TLS, files may be named behind a question mark, as in URLs of brokers, each percent-encoded where it needs to be:

    cacertfile=authority.pem          whom to trust; the system's authorities otherwise
    certfile=me.pem, keyfile=me.key   the certificate to show; its key may be in the same file

Without TLS, whoever can read or change what goes by decides which copy of a message counts. So `etcd://` is for members
at loopback addresses; for others the URL has to say `?insecure=true`.

Where etcd has users and asks for certificates (`--client-cert-auth`), the certificate must have no common name: etcd's
gateway refuses others, as it takes no user from a certificate. Names belong into subjectAltName.
"""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote

from shardmq.replication.etcd.errors import InvalidUrl
from shardmq.urls import PASSWORD_CUT, may_cut_password, shown_host, split_url

DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "shardmq"

_FORM: Final = "etcds://user:password@host:2379,host:2379/prefix?cacertfile=ca.pem"
_HOST: Final = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\[\]:]+))(?::(?P<port>\d{1,5}))?")
_PREFIX: Final = re.compile(r"[\w.-]+(?:/[\w.-]+)*")
_FILES: Final = ("cacertfile", "certfile", "keyfile")
_INSECURE: Final = "insecure"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One member of etcd.

    Attributes:
        host: name or address, IPv6 without brackets.
        port: of clients; 2379 when the URL has none.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, repr=False)
class EtcdUrl:
    """A parsed URL.

    Attributes:
        endpoints: members, at least one.
        prefix: what all keys begin with, without a slash at its ends.
        user: "" where etcd has no users.
        password: it never shows in texts.
        is_tls: whether it is etcds://.
        authorities: file with those to trust; None for the system's.
        certificate: file with the one to show.
        key: file with its key; None where that is in the certificate's file.
    """

    endpoints: tuple[Endpoint, ...]
    prefix: str = DEFAULT_PREFIX
    user: str = ""
    password: str = ""
    is_tls: bool = False
    authorities: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        hosts = ",".join(map(str, self.endpoints))
        return f"{'etcds' if self.is_tls else 'etcd'}://{hosts}/{self.prefix}"

    __repr__ = __str__


def parse(url: str) -> EtcdUrl:
    """Read a URL.

    Raises:
        InvalidUrl: it is not of the form etcds://user:password@host:2379,host:2379/prefix, or names members on other
            machines without TLS; the text says why, and has nothing that may be of a password.
    """
    try:
        parts = split_url(url)
    except ValueError as fault:
        raise InvalidUrl(f"the URL of etcd cannot be read ({fault}); write it as {_FORM}") from fault
    try:
        return _parse(parts)
    except InvalidUrl:
        if may_cut_password(parts):
            raise InvalidUrl(f"the URL of etcd cannot be read: {PASSWORD_CUT}; its form is {_FORM}") from None
        raise


def _parse(parts: SplitResult) -> EtcdUrl:
    if parts.scheme not in ("etcd", "etcds"):
        raise InvalidUrl(f"the URL begins with neither etcd:// nor etcds://; write it as {_FORM}")
    prefix = unquote(parts.path[1:])
    if parts.fragment or (prefix and not _PREFIX.fullmatch(prefix)):
        raise InvalidUrl(
            f"the prefix in the URL is not of letters, digits, '.', '-', '_' and '/' between them; write it as {_FORM}"
        )
    who, _, hosts = parts.netloc.rpartition("@")
    user, colon, password = who.partition(":")
    if who and not (user and colon):
        raise InvalidUrl(f"the URL has a user without a password, or none at all; write it as {_FORM}")
    is_tls = parts.scheme == "etcds"
    endpoints = tuple(dict.fromkeys(_endpoint(host) for host in hosts.split(",")))
    files = _files(parts.query, is_tls, endpoints)
    return EtcdUrl(
        endpoints=endpoints,
        prefix=prefix or DEFAULT_PREFIX,
        user=unquote(user),
        password=unquote(password),
        is_tls=is_tls,
        authorities=files.get("cacertfile"),
        certificate=files.get("certfile"),
        key=files.get("keyfile"),
    )


def _endpoint(host: str) -> Endpoint:
    found = _HOST.fullmatch(host)
    port = int((found and found["port"]) or DEFAULT_PORT)
    if found is None or not 0 < port < 65_536:
        raise InvalidUrl(f"'{shown_host(host)}' is no host with a port; write the URL of etcd as {_FORM}")
    return Endpoint((found["six"] or found["name"]).lower(), port)


def _files(query: str, is_tls: bool, endpoints: tuple[Endpoint, ...]) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as fault:
        raise InvalidUrl(f"the URL of etcd cannot be read behind its '?' ({fault}); write it as {_FORM}") from fault
    files: dict[str, str] = {}
    for name, value in pairs:
        if name in files or not (value == "true" if name == _INSECURE else name in _FILES and value):
            raise InvalidUrl(
                f"'{name}={value}' means nothing there; with TLS the URL may name {', '.join(_FILES)}, and without it "
                f"have {_INSECURE}=true"
            )
        files[name] = value
    is_insecure = files.pop(_INSECURE, None) is not None
    if files and not is_tls:
        raise InvalidUrl(f"{', '.join(files)} is for TLS: write the URL as {_FORM}")
    if is_insecure and is_tls:
        raise InvalidUrl(f"{_INSECURE}=true is for etcd://, and this is etcds://: leave one of them away")
    if not (is_tls or is_insecure) and (far := [str(endpoint) for endpoint in endpoints if not endpoint.is_loopback]):
        raise InvalidUrl(
            f"etcd:// is not encrypted, and {', '.join(far)} is not on this machine: write etcds:// with "
            f"?cacertfile=…, or end the URL with ?{_INSECURE}=true where nobody else reaches that network"
        )
    if "keyfile" in files and "certfile" not in files:
        raise InvalidUrl("the URL has a keyfile and no certfile; name the certificate that the key is for")
    return files
