"""Logins of browsers: a cookie stands for a user and a password. Scripts cannot read it, other sites cannot use it."""

import secrets
import time
from typing import Final

from shardmq.management.state.callers import Credentials

IDLE_SECONDS: Final = 8 * 3600.0
"""How long a session without requests lasts. A page that is looked at asks every five seconds."""

SESSIONS_MAX: Final = 1024
"""Sessions kept at once; past it, the one that was idle longest ends."""


class Sessions:
    """Who has logged in on the page, by the cookie's value. They end with this process."""

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Credentials, float]] = {}  # the one that was idle longest is first

    def begin(self, credentials: Credentials) -> str:
        """Begin a session; returns the cookie's value."""
        self._end_idle(time.monotonic())
        if len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        token = secrets.token_urlsafe(32)
        self._sessions[token] = credentials, time.monotonic()
        return token

    def find(self, token: str) -> Credentials | None:
        """Whose session it is; None where there is none."""
        now = time.monotonic()
        self._end_idle(now)
        credentials, _ = self._sessions.pop(token, (None, 0.0))
        if credentials is not None:
            self._sessions[token] = credentials, now
        return credentials

    def end(self, token: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(token, None)

    def _end_idle(self, now: float) -> None:
        while self._sessions:
            token, (_, used_at) = next(iter(self._sessions.items()))
            if now - used_at < IDLE_SECONDS:
                return
            del self._sessions[token]
