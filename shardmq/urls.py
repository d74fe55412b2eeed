"""URLs that may name several hosts, between commas, of which any may be an IPv6 address in brackets."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_AUTHORITY: Final = re.compile(r"(?P<scheme>[^:/?#]*:)?//(?P<authority>[^/?#]*)")
_HOST: Final = re.compile(r"\[[^\[\]]+\](?::.*)?|[^\[\]]*")
_BRACKETS: Final = str.maketrans("", "", "[]")
_IGNORED: Final = str.maketrans("", "", "\t\r\n")
"""What `urlsplit` takes out of URLs; it also strips the ends."""

PASSWORD_CUT: Final = (
    "an '@' stands behind its first '/', '?' or '#'; if these are of the password, write it percent-encoded: %2F for "
    "'/', %3F for '?', %23 for '#'"
)
"""What is wrong with a URL of `may_cut_password`, most likely."""


def split_url(url: str) -> SplitResult:
    """`urllib.parse.urlsplit`, but any host may have brackets: Python's security updates of 2025 allow the first alone.

    Raises:
        ValueError: brackets that are not around a host; what `urlsplit` refuses. The text has nothing of the URL.
    """
    url = url.strip().translate(_IGNORED)
    found = _AUTHORITY.match(url)
    if found is None:
        return urlsplit(url)
    hosts = found["authority"].rpartition("@")[2]
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError("brackets that are not around an IPv6 address")
    try:
        without = urlsplit(f"{found[0].translate(_BRACKETS)}{url[found.end() :]}")
    except ValueError:  # its text has user and password
        raise ValueError("characters before the path that are others under NFKC normalization") from None
    return without._replace(netloc=found["authority"])


def may_cut_password(parts: SplitResult) -> bool:
    """Whether the rest of a URL may be of a password with '/', '?' or '#' in it: texts are to name none of it."""
    return any("@" in part for part in (parts.path, parts.query, parts.fragment))


def shown_host(host: str) -> str:
    """What a text may name of a host that cannot be read: what stands in a port's place may be a password."""
    name, colon, port = host.partition(":")
    return host if not colon or port.isdecimal() else f"{name}:…"
