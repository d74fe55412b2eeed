"""SIGTERM and SIGINT, as a flag that a loop looks at."""

import signal
from types import FrameType


class StopSignal:
    """Set by SIGTERM and SIGINT; the pass at hand is finished first."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
