"""SIGTERM and SIGINT, as a flag that a loop looks at."""

import signal
from collections.abc import Callable
from types import FrameType


class StopSignal:
    """Set by SIGTERM and SIGINT. The pass at hand is finished first.

    Args:
        wake: called at the signal, to have a loop that sleeps look at once.

    Attributes:
        asked: whether the process is to stop.
    """

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self.asked = False
        self._wake = wake
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self._wake is not None:
            self._wake()
