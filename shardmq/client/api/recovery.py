"""How a lost connection is won back: the program's wishes, and when to try which address next."""

import math
from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from shardmq.client.api.url import Address
from shardmq.errors import InvalidRequest

_DICE: Final = Random()  # a program that has seeded the module's expects what it has seeded

STEADY_SECONDS: Final = 5.0
"""A connection that lasted so long was a good one: the next loss begins with the shortest wait again."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What to do when a connection is lost; `connect(..., recovery=None)` does nothing and tells everybody.

    All addresses are tried in turn, beginning behind the lost one; before each turn there is a pause of random length
    ("full jitter": clients that were lost together do not come back together).

    Attributes:
        first_seconds: longest pause before the first turn.
        max_seconds: longest pause at all; each turn's is twice the one before.
        attempts: turns until it is given up, at least 1; None for never.
        seconds: time until it is given up, over 0; None for never.
    """

    first_seconds: float = 0.1
    max_seconds: float = 10.0
    attempts: int | None = None
    seconds: float | None = None

    def check(self) -> None:
        """Raise for wishes that make no sense.

        Raises:
            TypeError: a field is not of its type.
            InvalidRequest: it is out of range.
        """
        _check_seconds("first_seconds", self.first_seconds)
        _check_seconds("max_seconds", self.max_seconds)
        if self.seconds is not None:
            _check_seconds("seconds", self.seconds)
        if self.first_seconds > self.max_seconds or self.first_seconds == math.inf:
            raise InvalidRequest(
                f"first_seconds of a recovery is up to its max_seconds ({self.max_seconds:g}), and not infinite; "
                f"it is {self.first_seconds:g}"
            )
        if self.attempts is None:
            return
        if type(self.attempts) is not int:
            raise TypeError(f"attempts of a recovery is an int, not {self.attempts!r}")
        if self.attempts < 1:
            raise InvalidRequest(
                f"attempts of a recovery is at least 1, not {self.attempts}; recovery=None is for none"
            )


def _check_seconds(name: str, seconds: float) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} of a recovery is a number of seconds, not {seconds!r}")
    if not seconds > 0:  # also where it is no number
        raise InvalidRequest(f"{name} of a recovery is over 0, not {seconds}")


class Recovered(msgspec.Struct, frozen=True):
    """What a recovery came to, for `Connection.on_recovery`.

    Attributes:
        address: the connection's now, as "host:port".
        renamed: queues that the server named, old name to new.
        failed: a sentence for each thing that could not be made again.
    """

    address: str
    renamed: dict[str, str]
    failed: list[str]


class Backoff:
    """Decides when to try which address.

    Args:
        recovery: the program's wishes.
        addresses: to try; the connection was made to the first that answered.
    """

    def __init__(self, recovery: Recovery, addresses: Sequence[Address]) -> None:
        self._recovery = recovery
        self._addresses = addresses
        self._place = 0
        self._turns = 0
        self._left = 0  # of this turn's addresses
        self._began = 0.0

    def connected(self, address: Address) -> None:
        """Note the address that the connection was made to."""
        self._place = self._addresses.index(address)

    def lost(self, now: float, lasted: float) -> None:
        """Begin a new series of tries; the lost connection had lasted so many seconds."""
        self._began = now
        self._left = 0
        if lasted >= STEADY_SECONDS:
            self._turns = 0

    def next(self, now: float) -> tuple[float, Address] | None:
        """The pause in seconds, then the address to try; None when it is time to give up."""
        recovery = self._recovery
        pause = 0.0
        if not self._left:
            if recovery.attempts is not None and self._turns >= recovery.attempts:
                return None
            longest = min(recovery.max_seconds, recovery.first_seconds * 2 ** min(self._turns, 32))
            pause = _DICE.uniform(0, longest)
            self._turns += 1
            self._left = len(self._addresses)
        if recovery.seconds is not None and now + pause - self._began > recovery.seconds:
            return None
        self._left -= 1
        self._place = (self._place + 1) % len(self._addresses)
        return pause, self._addresses[self._place]


DEFAULT_RECOVERY: Final = Recovery()


def check_recovery(recovery: Recovery | None) -> None:
    """Raise TypeError for what is no Recovery, InvalidRequest for wishes that make no sense."""
    if recovery is None:
        return
    if not isinstance(recovery, Recovery):
        raise TypeError(f"recovery is a shardmq.Recovery, or None for none, not {type(recovery).__name__}")
    recovery.check()
