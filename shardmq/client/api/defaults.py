"""Windows, prefetch, timeouts and limits of patience; constants alone."""

from typing import Final

PREFETCH: Final = 1000
"""Messages a consumer holds unacked, unless told otherwise: enough to hide the way to the broker and back."""

ACK_AT_MOST: Final = 1000
"""Acks are sent when there are so many, or half a prefetch."""

DIAL_SECONDS: Final = 10.0
"""For one address where there are others, or where it is tried again anyway."""

UNSENT_BYTES_MAX: Final = 8 << 20
"""A thread that publishes faster than the socket takes waits once this much is unsent."""

UNDELIVERED_BYTES_MAX: Final = 64 << 20
"""With this much delivered and not consumed the socket is not read, unless somebody waits for an answer."""

SILENT_BEATS: Final = 2
"""A server silent for so many heartbeats is dead."""

REPORT_SECONDS: Final = 0.1
"""Counts are reported so long after they began to rise."""

WINDOW: Final = 10_000
"""Messages unconfirmed before a publisher waits, unless told otherwise."""

RESTORE_PAUSE_SECONDS: Final = 0.5
"""Between two tries of what may be possible soon."""

PEEK_COUNT: Final = 10
"""Messages looked at, unless told otherwise."""

PULL_COUNT: Final = 10
"""Messages pulled at once, unless told otherwise."""

READ_COUNT: Final = 1000
"""Messages read at once, unless told otherwise."""

SEARCH_COUNT: Final = 100
"""Messages that a page of a search finds at most."""

CLOSE_SECONDS: Final = 5.0
"""`close` waits no longer than this for the server's goodbye."""

TIMEOUT_SECONDS: Final = 30.0
"""How long a request waits unless told otherwise; longer than a declaration may take while a process is restarted."""
