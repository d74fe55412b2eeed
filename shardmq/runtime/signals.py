"""SIGTERM and SIGINT, the same for all processes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # shards and the coordinator do without asyncio
    import asyncio

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopSignal:
    """A flag that SIGTERM and SIGINT set. The loop finishes its pass before it looks at it.

    Args:
        wake: called at the signal, to wake a loop that sleeps.

    Attributes:
        asked: whether the process is to stop.
    """

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self.asked = False
        self._wake = wake
        for number in STOP_SIGNALS:
            signal.signal(number, self._ask)

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have a signal call a function while a loop runs that sleeps; at once where one has come."""
        self._wake = wake
        if self.asked:
            wake()
        try:
            yield
        finally:
            self._wake = None

    @staticmethod
    def on_loop(loop: "asyncio.AbstractEventLoop", stop: Callable[[], object]) -> None:
        """Have an event loop call a function at every signal."""
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stop)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if self._wake is not None:
            self._wake()
