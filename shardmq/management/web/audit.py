"""The lines of the log that say who changed what from where, who was refused, and who logged in on the page.

All that was done has a line. What was refused has one each up to REFUSED_MAX in a minute, and one for the rest, so that
whoever guesses passwords does not fill a disk.
"""

import logging
import time
from typing import Final

REFUSED_MAX: Final = 100
"""Lines for what was refused, in a minute."""

MINUTE: Final = 60.0

USER_MAX: Final = 255
"""Characters shown of a user's name that the broker does not know yet."""

_log = logging.getLogger("shardmq.management.audit")


class Audit:
    """Writes these lines."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._refused = 0

    def done(self, user: str, peer: str | None, what: str) -> None:
        """Somebody changed something, or logged in."""
        _log.info("user %r from %s: %s", user, peer, what)

    def refused(self, user: str, peer: str | None, what: str) -> None:
        """Somebody was refused a change or a login."""
        now = time.monotonic()
        if now - self._since >= MINUTE:
            if self._refused > REFUSED_MAX:
                _log.warning("%d more requests were refused", self._refused - REFUSED_MAX)
            self._since, self._refused = now, 0
        self._refused += 1
        if self._refused <= REFUSED_MAX:
            _log.warning("user %r from %s: refused: %s", user[:USER_MAX], peer, what)
