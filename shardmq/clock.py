"""Time that does not jump: wall-clock time where the process began, and the monotonic clock's pace from there on.

Times to live and delays are measured by it: setting the machine's clock, forwards or back, fires and stalls nothing.
"""

import time


class SteadyClock:
    """See the module.

    Args:
        start_ms: what time it is now, milliseconds since 1970; the machine's when None.
    """

    __slots__ = ("_offset_ns",)

    def __init__(self, start_ms: int | None = None) -> None:
        start_ns = time.time_ns() if start_ms is None else start_ms * 1_000_000
        self._offset_ns = start_ns - time.monotonic_ns()

    def now_ms(self) -> int:
        """Milliseconds since 1970, never less than before."""
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
