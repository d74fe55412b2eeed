"""Which of a URL's gateways a task takes first. Nobody hands them out: each task goes by its own number.

    1. the gateway of the host that leads the shard of what is read, where the broker has named one
    2. those of the machine on which the task runs, and so of its executor
    3. the others

Of each kind, task 0 begins with the first, task 1 with the second, and so on: a job's tasks share them evenly. A second
attempt begins with another one than the first did. Where one cannot be reached, the next one is taken.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shardmq.client.api.url import Address, parse
from shardmq.errors import InvalidRequest

NEAREST: Final = "nearest"
SPREAD: Final = "spread"

_LOOPBACK: Final = ("127.", "::1")


@dataclass(frozen=True, slots=True)
class Route:
    """What decides which gateway comes first.

    Attributes:
        turn: the task's number; 0 on the driver.
        attempt: how often the task was tried before.
        wanted: where clients reach the host that leads what is read, as host:port; "" where that is unknown.
        is_spread: whether those of this machine are like any other.
    """

    turn: int = 0
    attempt: int = 0
    wanted: str = ""
    is_spread: bool = False


ANY: Final = Route()


def ordered(addresses: Sequence[Address], route: Route) -> list[Address]:
    """A URL's gateways in the order in which they are tried."""
    if len(addresses) < 2:
        return list(addresses)  # and no name is looked up
    wanted = _places(route.wanted)
    kinds: list[list[Address]] = [[], [], [], []]
    for address in addresses:
        ips = _ips(address.host)
        if any((ip, address.port) in wanted for ip in ips):
            kind = 0
        elif any(ip == host for ip in ips for host, _ in wanted):
            kind = 1  # of that host at another port: with TLS, say
        else:
            kind = 2 if not route.is_spread and any(map(_is_here, ips)) else 3
        kinds[kind].append(address)
    found = [address for kind in kinds for address in _turned(kind, route.turn)]
    return _turned(found, route.attempt)


def _turned(addresses: list[Address], by: int) -> list[Address]:
    first = by % len(addresses) if addresses else 0
    return addresses[first:] + addresses[:first]


def _places(text: str) -> set[tuple[str, int]]:
    """The addresses and the port of a gateway as the broker names it."""
    if not text:
        return set()
    try:
        address = parse(f"shardmq://{text}/")
    except InvalidRequest:
        return set()  # of a newer broker, say; any gateway will do
    return {(ip, address.port) for ip in _ips(address.host)}


@lru_cache(maxsize=256)
def _ips(host: str) -> tuple[str, ...]:
    """The addresses that a name has; none where it is not known here, which is told when it is dialled."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(dict.fromkeys(str(place[0]) for *_, place in found))


@lru_cache(maxsize=256)
def _is_here(ip: str) -> bool:
    """Whether an address is one of this machine's, or container's: then the way to it begins where it ends."""
    if ip.startswith(_LOOPBACK):
        return True
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))  # nothing is sent
        except OSError:
            return False  # no way there
        return bool(probe.getsockname()[0] == ip)
