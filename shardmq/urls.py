"""URLs that may name several hosts, between commas, of which any may be an IPv6 address in brackets."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

_AUTHORITY: Final = re.compile(r"(?P<scheme>[^:/?#]*:)?//(?P<authority>[^/?#]*)")
_HOST: Final = re.compile(r"\[[^\[\]]+\](?::.*)?|[^\[\]]*")
_BRACKETS: Final = str.maketrans("", "", "[]")
_IGNORED: Final = str.maketrans("", "", "\t\r\n")
"""What `urlsplit` takes out of URLs; it also strips the ends."""


def split_url(url: str) -> SplitResult:
    """`urllib.parse.urlsplit`, but any host may have brackets: Python's security updates of 2025 allow the first alone.

    Raises:
        ValueError: brackets that are not around a host; what `urlsplit` refuses.
    """
    url = url.strip().translate(_IGNORED)
    found = _AUTHORITY.match(url)
    if found is None:
        return urlsplit(url)
    hosts = found["authority"].rpartition("@")[2]
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError("brackets that are not around an IPv6 address")
    without = urlsplit(f"{found[0].translate(_BRACKETS)}{url[found.end() :]}")
    return without._replace(netloc=found["authority"])
