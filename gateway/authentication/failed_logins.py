"""Who has failed to log in lately, counted by source, by user and by both; what follows from that for the next attempt.

An attempt is judged by the worst of its three counts. Whoever has logged in as that user from that source before is
judged by the failures of this pair alone: attacks on the user from elsewhere, or on other users from the same source,
do not slow this one down.

Counts halve within a minute, so an attack that is over is soon forgotten. Success forgives a few failures, as somebody
makes who types; it does not forgive an attack, as an attacker may have a user of their own.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from shardmq.limits import NAME_BYTES_MAX

FREE: Final = 5
"""Failures without consequences: people mistype, and programs are given yesterday's password."""

DELAY_SECONDS: Final = 0.1
DELAY_SECONDS_MAX: Final = 5.0
"""A failure past the free ones is answered so late, twice as late with each, up to the most: within the time of a
handshake, so that nobody sees more than a slow answer."""

COUNT_MAX: Final = FREE + 10
"""Failures that are counted: past the longest delay more would only take longer to be forgotten."""

HALF_LIFE_SECONDS: Final = 60.0

REMEMBERED_MAX: Final = 4096
"""Sources, users and pairs remembered, each; beyond it, those that failed longest ago are forgotten."""

TRUST_SECONDS: Final = 24 * 3600.0
"""How long a source is known as one from which a user logs in; the last login counts."""

NETWORK_BITS: Final = 64
"""IPv6: who has one address has all of its network."""

Key = TypeVar("Key")


class Who(NamedTuple):
    """Who tries to log in."""

    source: str
    user: str


def who(peer: str, user: str) -> Who:
    """Who tries to log in, as it is counted.

    Args:
        peer: the client's address.
        user: the name that was given; names longer than any that exist are cut, as they come from strangers.
    """
    return Who(_source(peer), user[: NAME_BYTES_MAX + 1])


def _source(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False))


class _Failures(Generic[Key]):
    """Counts that halve within a minute."""

    def __init__(self) -> None:
        self._counts: OrderedDict[Key, tuple[float, float]] = OrderedDict()

    def count(self, key: Key, now: float) -> float:
        """How many failures count now."""
        counted, at = self._counts.get(key, (0.0, now))
        return float(counted * 0.5 ** ((now - at) / HALF_LIFE_SECONDS))

    def add(self, key: Key, number: float, now: float) -> None:
        """Add failures, or take some away."""
        count = min(self.count(key, now) + number, COUNT_MAX)
        self._counts.pop(key, None)
        if count > 0:
            self._counts[key] = count, now
            if len(self._counts) > REMEMBERED_MAX:
                self._counts.popitem(last=False)


class FailedLogins:
    """Counts failed logins by source, by user and by both, and says what follows for the next attempt.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sources: _Failures[str] = _Failures()
        self._users: _Failures[str] = _Failures()
        self._pairs: _Failures[Who] = _Failures()
        self._trusted: OrderedDict[Who, float] = OrderedDict()

    def is_trusted(self, who: Who) -> bool:
        """Whether that user has logged in from there."""
        return self._clock() - self._trusted.get(who, -TRUST_SECONDS) < TRUST_SECONDS

    def weight(self, who: Who) -> float:
        """How many failures count against an attempt."""
        now = self._clock()
        own = self._pairs.count(who, now)
        if self.is_trusted(who):
            return own
        return max(own, self._sources.count(who.source, now), self._users.count(who.user, now))

    def rank(self, who: Who) -> int:
        """The rank of an attempt in the queue; the lowest is first.

        Returns:
            0 where that user has logged in from there before, 1 without suspicion, 2 for failures of others (the same
            source or the same user), 3 for failures of this user from this source.
        """
        if self._pairs.count(who, self._clock()) >= FREE:
            return 3
        if self.is_trusted(who):
            return 0
        return 1 if self.weight(who) < FREE else 2

    def is_suspected(self, who: Who) -> bool:
        """Whether an attempt is one of those that are slowed down."""
        return self.weight(who) >= FREE

    def failed(self, who: Who) -> float:
        """Count an attempt that has failed; returns the seconds until it may be answered."""
        now = self._clock()
        self._sources.add(who.source, 1, now)
        self._users.add(who.user, 1, now)
        self._pairs.add(who, 1, now)
        excess = self.weight(who) - FREE
        return min(DELAY_SECONDS * 2**excess, DELAY_SECONDS_MAX) if excess > 0 else 0.0

    def succeeded(self, who: Who) -> None:
        """Note an attempt that was right."""
        now = self._clock()
        self._trusted.pop(who, None)
        self._trusted[who] = now
        if len(self._trusted) > REMEMBERED_MAX:
            self._trusted.popitem(last=False)
        own = self._pairs.count(who, now)
        if 0 < own < FREE:
            self._pairs.add(who, -own, now)
            self._sources.add(who.source, -own, now)
            self._users.add(who.user, -own, now)
