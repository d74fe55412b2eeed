"""Places of requests with large bodies, of which few are in memory at once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from weakref import WeakValueDictionary

PLACES: Final = 4
"""Requests with large bodies that are taken in or carried out at once; more wait."""

PLACES_OF_USER: Final = 2
"""Of them, one user's: whoever sends many, or sends slowly, holds up nobody else."""


class LargeRequests:
    """Places for requests with large bodies: who has one may send the rest of its body, and is carried out."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(PLACES)
        self._of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._waiting = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for a place."""
        return self._waiting > 0

    @contextlib.asynccontextmanager
    async def place(self, user: str) -> AsyncIterator[None]:
        """Wait for a place, and keep it meanwhile."""
        of_user = self._of_users.get(user)
        if of_user is None:
            of_user = self._of_users[user] = asyncio.Semaphore(PLACES_OF_USER)
        async with contextlib.AsyncExitStack() as held:
            self._waiting += 1
            try:
                await held.enter_async_context(of_user)
                await held.enter_async_context(self._free)
            finally:
                self._waiting -= 1
            yield
