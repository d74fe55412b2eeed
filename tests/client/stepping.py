"""Interleavings of threads, tried one after the other: what another thread does is done before a line of this one's."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import FrameType, ModuleType
from typing import Any


class Step:
    """Does something before one line of what this thread runs; not while it holds a lock that others would wait for.

    Args:
        modules: whose lines are counted.
        locks: that other threads would wait for.
        line: before which one, counted from 1.
        act: what another thread does there.

    Attributes:
        has_acted: whether there was such a line.
    """

    def __init__(
        self, modules: Iterable[ModuleType], locks: Iterable[Lock], line: int, act: Callable[[], object]
    ) -> None:
        self._files = {module.__file__ for module in modules}
        self._locks = list(locks)
        self._line = line
        self._act = act
        self._lines = 0
        self.has_acted = False

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Step through what runs inside."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self._lines += 1
            if self._lines >= self._line and not self.has_acted and not any(lock.locked() for lock in self._locks):
                self.has_acted = True
                self._act()
        return self._trace
