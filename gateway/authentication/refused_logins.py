"""Logins that were refused: counted for the status, and told of in the log without filling the disk."""

import logging
from collections import Counter
from typing import Final

from shardmq.limits import NAME_BYTES_MAX

COMPLAINTS_MAX: Final = 10
"""Refused logins with a line of their own in the log, of those of one minute; the others are summed up."""

SUMMARY_SECONDS: Final = 60.0
NAMES_MAX: Final = 1000
"""Sources and users told apart in one minute; the rest counts together."""

NAMES_SHOWN: Final = 5

_log = logging.getLogger(__name__)


class RefusedLogins:
    """Counts refused logins, and logs them.

    Attributes:
        count: since the process began.
    """

    def __init__(self) -> None:
        self.count = 0
        self._since: float | None = None
        self._logged = 0
        self._unlogged = 0
        self._sources: Counter[str] = Counter()
        self._users: Counter[str] = Counter()

    def add(self, peer: str, user: str, text: str) -> None:
        """Log that somebody was not let in; clients are not always told why."""
        self.count += 1
        user = user[:NAME_BYTES_MAX]
        _count(self._sources, peer)
        _count(self._users, repr(user))
        if self._logged >= COMPLAINTS_MAX:
            self._unlogged += 1
            return
        self._logged += 1
        shown = text if text.isprintable() else repr(text)  # names are the client's; one line each
        _log.warning("login of user %r from %s refused: %s", user, peer, shown)

    def tick(self, now: float) -> None:
        """Sum up a minute after the first refusal; called about once a second."""
        if self._since is None or not self._logged:
            self._since = now
        elif now - self._since >= SUMMARY_SECONDS:
            self._since = now
            self.sum_up()

    def sum_up(self) -> None:
        """Log in one line what has no line of its own."""
        if self._unlogged:
            _log.warning(
                "%d logins were refused, %d of them without a line here: from %s; as %s",
                self._logged + self._unlogged,
                self._unlogged,
                _shown(self._sources, "addresses"),
                _shown(self._users, "users"),
            )
        self._logged = self._unlogged = 0
        self._sources.clear()
        self._users.clear()


_OTHERS: Final = ""


def _count(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < NAMES_MAX else _OTHERS] += 1


def _shown(counter: Counter[str], noun: str) -> str:
    """The names that count most, such as "10.0.0.7 (1,200), 10.0.0.9 (3), 2 other addresses (2)"."""
    named = [(name, count) for name, count in counter.most_common(NAMES_SHOWN + 1) if name != _OTHERS][:NAMES_SHOWN]
    words = [f"{name} ({count:,})" for name, count in named]
    rest = counter.total() - sum(count for _, count in named)
    if rest:
        more = len(counter.keys() - {_OTHERS}) - len(named)
        words.append(f"{more:,}{' or more' if _OTHERS in counter else ''} other {noun} ({rest:,})")
    return ", ".join(words)
