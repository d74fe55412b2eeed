"""What messages died of, where and when, as their `x-death` says; and dead letters that were found, by that."""

from datetime import datetime
from typing import Any, Final, NamedTuple

from shardmq.limits import NAME_BYTES_MAX
from shardmq.message.json_values import plain

GROUPS_MAX = 256
"""Pairs of a queue and a reason in one answer."""

SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999: no death is later."""

Group = tuple[str, str, int | None, int | None, list[tuple[int, int]]]
"""Where and of what messages died, the first and the last of these deaths, ms since 1970, and where they lie now."""


class Death(NamedTuple):
    """How a message died the last time.

    Attributes:
        queue: it was in.
        reason: as rejected, expired or maxlen.
        time_ms: since 1970; None where that is not known.
    """

    queue: str
    reason: str
    time_ms: int | None


def last_death(headers: dict[str, Any] | None) -> Death | None:
    """The most recent entry of `x-death` in a message's headers; None where there is none that names a queue."""
    found = (headers or {}).get("x-death")
    row = found[0] if isinstance(found, list) and found else None
    queue = plain(row.get("queue")) if isinstance(row, dict) else None
    if not isinstance(row, dict) or not isinstance(queue, str) or len(queue) > NAME_BYTES_MAX:
        return None
    return Death(queue, str(plain(row.get("reason", "")))[:NAME_BYTES_MAX], _time_ms(row.get("time")))


def _time_ms(when: Any) -> int | None:
    """A time of death, whatever a publisher has written there; None where it is none that can be passed on."""
    if isinstance(when, datetime):
        when = int(when.timestamp())
    is_time = isinstance(when, int) and not isinstance(when, bool) and 0 <= when <= SECONDS_MAX
    return when * 1000 if is_time else None


class DeathGroups:
    """Dead letters as they are found, by where and of what they died.

    Args:
        ranges_max: of neighbouring messages, in all groups together.
    """

    __slots__ = ("_groups", "_ranges", "_ranges_max")

    def __init__(self, ranges_max: int) -> None:
        self._groups: dict[tuple[str, str], tuple[list[int], list[tuple[int, int]]]] = {}
        self._ranges = 0
        self._ranges_max = ranges_max

    @property
    def is_full(self) -> bool:
        """Whether no more may be added."""
        return self._ranges >= self._ranges_max or len(self._groups) >= GROUPS_MAX

    def add(self, number: int, death: Death) -> None:
        """Add the message of that number, behind those that were added before."""
        times, ranges = self._groups.setdefault(death[:2], ([], []))
        if death.time_ms is not None:
            times[:] = min([*times, death.time_ms]), max([*times, death.time_ms])
        if ranges and ranges[-1][1] == number:
            ranges[-1] = ranges[-1][0], number + 1
        else:
            ranges.append((number, number + 1))
            self._ranges += 1

    def groups(self) -> list[Group]:
        """All groups, in the order in which they were found."""
        return [
            (queue, reason, times[0] if times else None, times[1] if times else None, ranges)
            for (queue, reason), (times, ranges) in self._groups.items()
        ]
