"""The values of a few columns over time, thinner the older they are."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

SLACK_SECONDS: Final = 1.0
"""A sample that comes by so much too soon is taken all the same: timers are not exact."""

TRIM: Final = 32
"""Samples that are dropped at once: each drop moves all others."""


class Step(NamedTuple):
    """How dense samples are, and how many are kept.

    Attributes:
        seconds: from one to the next.
        kept: how many, and TRIM more at times.
    """

    seconds: float
    kept: int


class Series:
    """The values of a few columns over time.

    Args:
        width: how many columns.
        steps: the densest first, each reaching further back.

    Attributes:
        looked_at: seconds since 1970 when somebody last asked for it.
    """

    def __init__(self, width: int, steps: Sequence[Step]) -> None:
        self.looked_at = 0.0
        self._width = width
        self._steps = steps
        self._times = [array("d") for _ in steps]
        self._values = [array("d") for _ in steps]

    @property
    def newest(self) -> float:
        """Seconds since 1970 of the newest sample; 0 without one."""
        return self._times[0][-1] if self._times[0] else 0.0

    @property
    def bytes(self) -> int:
        """Memory that the samples take."""
        return sum(8 * (len(times) + len(values)) for times, values in zip(self._times, self._values, strict=True))

    def add(self, at: float, values: Sequence[float]) -> None:
        """Add a sample, where it is time for one; a clock that was set back begins anew.

        Args:
            at: seconds since 1970.
            values: one for each column; NaN where it is not known.
        """
        for step, times, columns in zip(self._steps, self._times, self._values, strict=True):
            if times and at < times[-1]:
                del times[:], columns[:]
            if times and at - times[-1] < step.seconds - SLACK_SECONDS:
                continue
            times.append(at)
            columns.extend(values)
            if len(times) > step.kept + TRIM:
                del times[:TRIM]
                del columns[: TRIM * self._width]

    def at(self, moments: Sequence[float]) -> list[tuple[float, ...] | None]:
        """The values at some moments: of the last sample before each, None where there is none.

        Args:
            moments: seconds since 1970, the newest first.
        """
        place = self._step_for(moments[-1])
        step, times, columns = self._steps[place], self._times[place], self._values[place]
        found: list[tuple[float, ...] | None] = []
        for moment in moments:
            index = bisect_right(times, moment) - 1
            if index < 0 or moment - times[index] > 3 * step.seconds:  # nobody was there to count
                found.append(None)
            else:
                found.append(tuple(columns[index * self._width : (index + 1) * self._width]))
        return found

    def _step_for(self, oldest: float) -> int:
        """The densest step that reaches so far back, or as far as any."""
        reaches = [times[0] if times else math.inf for times in self._times]
        for place, reach in enumerate(reaches):
            if reach <= oldest or reach <= min(reaches):
                return place
        return len(reaches) - 1
