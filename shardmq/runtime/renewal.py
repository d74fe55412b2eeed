"""The TLS of a listening port whose files may be renewed while it listens.

New connections get the files as they are; those that are open keep theirs. Files are looked at once a minute, and at
SIGHUP. What cannot be used is refused with a line in the log, and what was there before stays.
"""

import asyncio
import logging
import signal
import ssl
from pathlib import Path
from typing import Any, Final

from shardmq.errors import StartupRefused
from shardmq.runtime.tls import TlsOptions, server_context

LOOK_SECONDS: Final = 60.0

_log = logging.getLogger(__name__)

Stamps = tuple[tuple[int, int, int] | None, ...]


class RenewableContext(ssl.SSLContext):
    """A context for a listener that hands each new connection to the context made of the files last.

    Event loops want an `ssl.SSLContext` and ask it for nothing but `wrap_bio`, once for each connection.

    Args:
        options: name the files.

    Raises:
        StartupRefused: a file does not exist, cannot be read, or holds something else.
    """

    _options: TlsOptions
    _stamps: Stamps
    _current: ssl.SSLContext
    _look_at: float

    def __new__(cls, options: TlsOptions) -> "RenewableContext":
        """Make the context of the files as they are."""
        self = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        self._options = options
        self._stamps = _stamps(options)
        self._current = server_context(options)
        self._look_at = 0.0
        return self

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """The TLS of a new connection."""
        return self._current.wrap_bio(*arguments, **options)

    def look(self, now: float) -> None:
        """Read the files anew where a minute has passed and they have changed.

        Args:
            now: in seconds, of a clock that does not go back.
        """
        if now < self._look_at:
            return
        is_first = not self._look_at
        self._look_at = now + LOOK_SECONDS
        if not is_first and _stamps(self._options) != self._stamps:
            self.renew()

    def renew(self) -> None:
        """Read the files anew; where they cannot be used, those that were read before stay."""
        # Their state comes first: what is changed while they are read is read again at the next look.
        self._stamps = _stamps(self._options)
        try:
            self._current = server_context(self._options)
        except StartupRefused as fault:
            _log.error("%s; new connections get the certificate that was read before", fault.text)
        else:
            _log.info("TLS: read certificate %s anew, for new connections", self._options.certificate)

    def renew_at_hangup(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have SIGHUP read the files anew."""
        loop.add_signal_handler(signal.SIGHUP, self.renew)


def _stamps(options: TlsOptions) -> Stamps:
    """What changes when a file is written, replaced, or may be read by others."""
    return tuple(_stamp(path) for path in (options.certificate, options.key, options.ca) if path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns
