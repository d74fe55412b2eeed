"""Steady time that survives restarts, and the notice that a process stood still.

The steady clock has wall-clock time where the process began, and the monotonic clock's pace from there on.

Times to live and delays are measured by it, so that setting the machine's clock neither fires nor stalls any. A process
that stores notes of the clock continues it when it is started again, for as long as the machine runs.
"""

import functools
import time
from pathlib import Path
from typing import Final

import msgspec

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS: Final = 1_000_000

_MOMENT_BOOT_CHARS: Final = 8
"""Each commit of a replica has a moment: a whole boot id would make it larger by 28 bytes."""

STANDSTILL_SECONDS: Final = 1.5
"""A tick that comes later than this is late. They come ten times a second or so, and twice at least."""


class ClockNote(msgspec.Struct, frozen=True, array_like=True):
    """A note of the time by a steady clock.

    Attributes:
        boot: the machine's boot id.
        boottime_ms: how long the machine had been running.
        steady_ms: the clock's time, milliseconds since 1970.
    """

    boot: str
    boottime_ms: int
    steady_ms: int


class Moment(msgspec.Struct, frozen=True, array_like=True):
    """A moment of one run of the machine.

    Attributes:
        boot: which run: the beginning of the machine's boot id.
        boottime: seconds since it began, suspension included.
    """

    boot: str
    boottime: float

    @classmethod
    def now(cls) -> "Moment":
        """Return this moment."""
        return cls(_boot_id()[:_MOMENT_BOOT_CHARS], boottime())

    def seconds_ago(self) -> float | None:
        """Return how long ago it was; None where the machine was booted since, or it was on another one."""
        return boottime() - self.boottime if _boot_id().startswith(self.boot) else None


class SteadyClock:
    """Wall-clock time at the start, and the monotonic clock's pace from there on.

    Args:
        start_ms: what time it is now, milliseconds since 1970; the machine's when None.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self, start_ms: int | None = None) -> None:
        start_ns = time.time_ns() if start_ms is None else start_ms * _NS_PER_MS
        self._offset_ns = start_ns - time.monotonic_ns()

    @staticmethod
    def resumed(note: ClockNote | None) -> "SteadyClock":
        """Continue the clock of a note.

        Within one run of the machine, the time since the note is known, whatever the machine's clock was set to. After
        a boot the machine's clock is used, unless it is behind the note.
        """
        if note is None:
            return SteadyClock()
        if note.boot == _boot_id():
            return SteadyClock(note.steady_ms + _boottime_ms() - note.boottime_ms)
        return SteadyClock(max(time.time_ns() // _NS_PER_MS, note.steady_ms))

    def note(self) -> ClockNote:
        """Take a note for `resumed`."""
        return ClockNote(_boot_id(), _boottime_ms(), self.now_ms())

    def now_ms(self) -> int:
        """The time in milliseconds since 1970, never less than before."""
        return (time.monotonic_ns() + self._offset_ns) // _NS_PER_MS


class Ticks:
    """Notices that the process stood still, by SIGSTOP or because the machine was suspended.

    The process has not read its peers' messages then, so they must not be taken for silent. A busy loop whose ticks are
    always late has read them between the ticks: a late tick counts only if the one before was on time.
    """

    __slots__ = ("_last", "_was_late")

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._was_late = False

    def stood_still(self, now: float) -> float:
        """Note a tick. Returns the seconds for which the process stood still before it; 0 where it did not."""
        pause, self._last = now - self._last, now
        is_late, was_late = pause > STANDSTILL_SECONDS, self._was_late
        self._was_late = is_late
        return pause if is_late and not was_late else 0.0


@functools.cache
def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _boottime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS


def boottime() -> float:
    """Seconds since the machine's boot, suspension included: what deadlines that others rely on are in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
