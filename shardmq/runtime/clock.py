"""Time that does not jump, and how much of it a process was not there for.

The steady clock has wall-clock time where the process began, and the monotonic clock's pace from there on.

Times to live and delays are measured by it: setting the machine's clock, forwards or back, fires and stalls nothing. A
process that keeps notes of it goes on where it was, also when it is started again, for as long as the machine runs.
"""

import functools
import time
from pathlib import Path
from typing import Final

import msgspec

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS: Final = 1_000_000

STANDSTILL_SECONDS: Final = 1.5
"""Ticks come ten times a second or so, and twice at least."""


class ClockNote(msgspec.Struct, frozen=True, array_like=True):
    """What time it was by a steady clock.

    Attributes:
        boot: the machine's boot id.
        boottime_ms: how long it had been running.
        steady_ms: the clock's time, milliseconds since 1970.
    """

    boot: str
    boottime_ms: int
    steady_ms: int


class SteadyClock:
    """See the module.

    Args:
        start_ms: what time it is now, milliseconds since 1970; the machine's when None.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self, start_ms: int | None = None) -> None:
        start_ns = time.time_ns() if start_ms is None else start_ms * _NS_PER_MS
        self._offset_ns = start_ns - time.monotonic_ns()

    @staticmethod
    def resumed(note: ClockNote | None) -> "SteadyClock":
        """The clock that a note was taken of, as it goes on now.

        Within one run of the machine, what has passed since is known, whatever its clock was set to meanwhile. After a
        boot only the machine's clock can tell; it is believed unless it says less than the note.
        """
        if note is None:
            return SteadyClock()
        if note.boot == _boot_id():
            return SteadyClock(note.steady_ms + _boottime_ms() - note.boottime_ms)
        return SteadyClock(max(time.time_ns() // _NS_PER_MS, note.steady_ms))

    def note(self) -> ClockNote:
        """What `resumed` needs."""
        return ClockNote(_boot_id(), _boottime_ms(), self.now_ms())

    def now_ms(self) -> int:
        """Milliseconds since 1970, never less than before."""
        return (time.monotonic_ns() + self._offset_ns) // _NS_PER_MS


class Ticks:
    """Notices that the process stood still (SIGSTOP, a machine that was suspended): what others said meanwhile has not
    been read then, and nobody may be taken for silent.

    All that has come is read between two ticks. So whose ticks are always late, as the work is, has listened after all:
    a late tick counts only where the one before was in time.
    """

    __slots__ = ("_last", "_was_late")

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._was_late = False

    def stood_still(self, now: float) -> float:
        """To be asked in every tick: the seconds, monotonic, since the last one if nobody listened then; else 0."""
        pause, self._last = now - self._last, now
        is_late, was_late = pause > STANDSTILL_SECONDS, self._was_late
        self._was_late = is_late
        return pause if is_late and not was_late else 0.0


@functools.cache
def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()


def _boottime_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _NS_PER_MS
