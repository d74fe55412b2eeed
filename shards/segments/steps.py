"""Work that is carried out in steps, with what each step counts for."""

from collections.abc import Iterator
from typing import Final

SEGMENT_COST_BYTES: Final = 64 << 10

RANGE_COST_BYTES: Final = 32 << 10
"""What a segment that is removed, and a range of one that stays, count for at least."""

Steps = Iterator[int]
"""Carries out a step each time it is asked for the next; says what that counted for, in bytes."""
