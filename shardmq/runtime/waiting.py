"""Logs every few seconds what a process waits for."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

FIRST_SECONDS: Final = 2.0
"""Nothing is logged before: another process starts or restarts within this time."""

AGAIN_SECONDS: Final = 5.0
"""Time between two lines of the log."""

_log = logging.getLogger(__name__)


class WaitingReport:
    """Logs what is missing, every few seconds until it is there.

    Args:
        missing: returns what the process waits for now, such as ["shard 1 at tcp://10.0.0.2:5680"].
    """

    def __init__(self, missing: Callable[[], Sequence[str]]) -> None:
        self._missing = missing
        self._next = 0.0
        self._is_said = False

    def look(self, now: float) -> None:
        """Log what is missing if it is time to. Call it with every tick, with monotonic time."""
        missing = self._missing()
        if not missing:
            if self._is_said:
                _log.info("everything that was waited for is there")
            self._next, self._is_said = 0.0, False
        elif not self._next:
            self._next = now + FIRST_SECONDS
        elif now >= self._next:
            _log.warning("waiting for %s", ", ".join(missing))
            self._next, self._is_said = now + AGAIN_SECONDS, True
