"""Limits how many passwords are tried at once: each attempt needs a place, and each source and user has few.

An attempt that fails keeps its place until its delay is over, whether or not its client waits that long. So nobody
tries more than PLACES passwords in the time of a delay, over however many connections; and a right password that finds
a place is not delayed at all. A user that has logged in from a source before has places of its own there: attempts as
that user from elsewhere, or as others from there, cannot take them.
"""

import asyncio
from collections import Counter, deque
from typing import Final, NamedTuple, TypeVar

from shardmq.errors import AuthenticationFailed, ReplyCode
from shardmq.gateway.authentication.failed_logins import FailedLogins, Who
from shardmq.limits import HANDSHAKE_SECONDS, NAME_BYTES_MAX

PLACES: Final = 32
"""Attempts at once of one source, as one user, and of both together. With the longest delay of 5 s, six passwords a
second are tried; and two dozen connections that guess leave places for who does not."""

KNOWN_PLACES: Final = 256
"""The same where that user has logged in from that source before: guesses from there must not keep out who knows the
password, and cost no more than a keyed hash."""

STRANGERS_MAX: Final = 1024
STRANGE_SUSPECTS_MAX: Final = 256
"""Attempts at once of all who are not known, and how many there may be for one that is suspected to be let in: more
than are compared in the time of a delay. Who attacks from many addresses fills the second, not the first."""

SUSPECTS_MAX: Final = 1024
SUSPECTS_OF_SOURCE_MAX: Final = 64
"""Attempts with failures behind them that wait for a place: each holds a connection. More are refused at once."""

WAIT_SECONDS_MAX: Final = 30.0
"""Who is not suspected waits while many others are looked at, as after a restart, longer than the handshake takes."""

Key = TypeVar("Key")


def too_many(who: Who) -> AuthenticationFailed:
    """The error for somebody whose password was not looked at; its code says that it may be tried again."""
    return AuthenticationFailed(
        f"too many logins from {who.source} or of user '{who.user[:NAME_BYTES_MAX]}' have failed; "
        "try again in some seconds",
        ReplyCode.RESOURCE_ERROR,
    )


class Place(NamedTuple):
    """A place that is taken.

    Attributes:
        who: whose attempt has it.
        is_known: whether it is one of those for users that have logged in from there before.
    """

    who: Who
    is_known: bool


class LoginQueue:
    """Gives each attempt to log in a place, and has others wait for one.

    Args:
        failed_logins: who has failed.

    Attributes:
        places: that are taken.
        waiting: attempts that have no place yet.
    """

    def __init__(self, failed_logins: FailedLogins) -> None:
        self._failed_logins = failed_logins
        self._of_sources: Counter[str] = Counter()
        self._of_users: Counter[str] = Counter()
        self._of_known: Counter[Who] = Counter()
        self._strangers = 0
        self._queues: dict[Who, deque[asyncio.Future[Place]]] = {}
        self._queued: Counter[str] = Counter()  # by source
        self.places = 0
        self.waiting = 0

    async def enter(self, who: Who) -> Place:
        """Take a place; wait for one where there is none.

        Raises:
            AuthenticationFailed: too many wait, or none came free in time.
        """
        if who not in self._queues and self._has_room(who):
            return self._take(who)
        is_suspected = self._failed_logins.is_suspected(who)
        if is_suspected and (self.waiting >= SUSPECTS_MAX or self._queued[who.source] >= SUSPECTS_OF_SOURCE_MAX):
            raise too_many(who)
        turn: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(who, deque()).append(turn)
        self._queued[who.source] += 1
        self.waiting += 1
        await asyncio.wait([turn], timeout=HANDSHAKE_SECONDS if is_suspected else WAIT_SECONDS_MAX)
        if not turn.done():
            self._queues[who].remove(turn)
            self._dequeued(who)
            raise too_many(who)
        return turn.result()

    def leave(self, place: Place) -> None:
        """Free a place."""
        self.places -= 1
        if place.is_known:
            _lower(self._of_known, place.who)
        else:
            self._strangers -= 1
            _lower(self._of_sources, place.who.source)
            _lower(self._of_users, place.who.user)
        self._call()

    def _take(self, who: Who) -> Place:
        place = Place(who, self._failed_logins.is_trusted(who))
        self.places += 1
        if place.is_known:
            self._of_known[who] += 1
        else:
            self._strangers += 1
            self._of_sources[who.source] += 1
            self._of_users[who.user] += 1
        return place

    def _has_room(self, who: Who) -> bool:
        if self._failed_logins.is_trusted(who):
            return self._of_known[who] < KNOWN_PLACES
        if self._of_sources[who.source] >= PLACES or self._of_users[who.user] >= PLACES:
            return False
        return self._strangers < (STRANGE_SUSPECTS_MAX if self._failed_logins.is_suspected(who) else STRANGERS_MAX)

    def _call(self) -> None:
        """Give free places to those who wait, the least suspected first."""
        candidates = [who for who in self._queues if self._has_room(who)]
        for who in sorted(candidates, key=self._failed_logins.rank):
            while who in self._queues and self._has_room(who):
                self._queues[who].popleft().set_result(self._take(who))
                self._dequeued(who)

    def _dequeued(self, who: Who) -> None:
        if not self._queues[who]:
            del self._queues[who]
        _lower(self._queued, who.source)
        self.waiting -= 1


def _lower(counter: Counter[Key], key: Key) -> None:
    """One less; a counter of strangers' names keeps no zeros."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
