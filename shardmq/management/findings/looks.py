"""Since when something has been found, and what was found at the last look."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from shardmq.management.findings.finding import Finding
from shardmq.management.findings.past import Past

FORGET_SECONDS: Final = 150.0
"""Where nobody has looked for so long, what is found begins then: it may have been gone meanwhile."""

LOOK_SECONDS: Final = 2.0
"""A look that comes sooner is answered with what the one before it found."""

Find = Callable[[], Awaitable[Sequence[Finding]]]


class Looks:
    """The findings of one user.

    Args:
        past: what earlier looks saw; None for nothing yet.

    Attributes:
        past: likewise.
    """

    def __init__(self, past: Past | None = None) -> None:
        self._since: dict[tuple[str, str, str], float] = {}
        self._found: Sequence[Finding] = ()
        self._looked_at = float("-inf")
        self._lock = asyncio.Lock()
        self.past = Past() if past is None else past

    async def rows(
        self, find: Find, address: str, after: float | None = None, age: float = LOOK_SECONDS
    ) -> list[dict[str, Any]]:
        """What is wrong for long enough to be told of, the worst first.

        Args:
            find: looks and applies the rules.
            address: of the broker, as host:port.
            after: seconds it has to have lasted; None for what each rule says.
            age: seconds that an earlier look is good for.
        """
        async with self._lock:
            ago = time.monotonic() - self._looked_at
            if ago >= FORGET_SECONDS:
                self._since = {}
            if ago >= age:
                self._take(await find(), time.time())
                self._looked_at = time.monotonic()
            now = time.time()
            return [
                finding.row(self._since[finding.key], address)
                for finding in self._found
                if now - self._since[finding.key] >= (finding.patience if after is None else after)
            ]

    def _take(self, found: Sequence[Finding], now: float) -> None:
        self._since = {each.key: min(self._since.get(each.key, now), now - (each.lasted or 0.0)) for each in found}
        self._found = sorted(found, key=lambda each: (each.severity, each.key))
