"""Answers that everybody gets who asks for the same at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

FRESH_SECONDS: Final = 1.0
"""An answer is as good as new for so long."""

KEPT_MAX: Final = 64
"""Answers that are kept; past it, the oldest goes."""


class SharedAnswers:
    """Asks once for what several want to know within a second."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[float, Any]] = {}
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        """An answer: one that is there, one that is under way, or a new one.

        Args:
            key: what is asked, and by whom.
            ask: asks. Where it fails for somebody, for whom the others wait, these ask themselves, once: the login of
                the first may have ended.
        """
        at, answer = self._found.get(key, (float("-inf"), None))
        if time.monotonic() - at < FRESH_SECONDS:
            return answer
        task = self._asked.get(key)
        if task is not None:
            await asyncio.wait((task,))
            if not task.cancelled() and task.exception() is None:
                return task.result()
            task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(task)  # the others go on waiting where one gives up

    def keep(self, key: Hashable, answer: Any) -> None:
        """Keep an answer that somebody got for themselves."""
        self._found.pop(key, None)
        self._found[key] = time.monotonic(), answer
        if len(self._found) > KEPT_MAX:
            del self._found[next(iter(self._found))]

    def forget(self) -> None:
        """Something was changed: what is asked from now on is asked anew."""
        self._found.clear()
        self._asked.clear()

    def _done(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]
            if not task.cancelled() and task.exception() is None:
                self.keep(key, task.result())
        elif not task.cancelled():
            task.exception()  # who waits is told; nobody may be left
