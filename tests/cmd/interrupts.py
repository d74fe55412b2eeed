"""Programs that Ctrl-C is to end, whoever runs the tests."""

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and everything under it inherits that."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
