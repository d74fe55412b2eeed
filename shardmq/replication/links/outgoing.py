"""What one replica says to another, as far as that reads it.

A link that is away loses what is said to it. The core is told once it is there again: by then it matters.
"""

import logging
from collections import deque
from typing import Final

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.transport.transport import ENVELOPE_BYTES
from shardmq.replication.links.wire import Taken, ToReplica, size_of

WAITING_BYTES_MAX: Final = 64 << 20
"""A replica that has so much yet to read, beside the largest message of it, has lost its link. It catches up by its
touched keys, or joins, which takes a range at a time; and a row that is as large comes by itself, too."""

_log = logging.getLogger(__name__)


class Outgoing:
    """The link to one other replica.

    Args:
        dialer: of it.
        name: of the other replica.
        has_predecessor: whether there was a link to it before, of which nobody knows what it has lost.
    """

    def __init__(self, dialer: "Dialer[Taken]", name: str, has_predecessor: bool) -> None:
        self.dialer = dialer
        self._name = name
        self._sent = 0
        self._taken = 0
        self._unflushed = 0
        self._largest: deque[tuple[int, int]] = deque()  # unread (end, size): the largest, that behind it, and so on
        self._has_dropped = has_predecessor

    def say(self, message: ToReplica) -> None:
        """Send a message with the next flush; not at all where nobody is there to hear it."""
        if not self.dialer.is_open:
            self._has_dropped = True
            return
        size = size_of(message)
        self._sent += size
        self._unflushed += size
        largest = self._largest
        while largest and largest[-1][1] <= size:
            largest.pop()
        largest.append((self._sent, size))
        self.dialer.post(message)
        if self._unflushed > ENVELOPE_BYTES:
            self.flush()
        if self._sent - self._taken - largest[0][1] > WAITING_BYTES_MAX:
            self.dialer.end(f"{self._name} has yet to read {self._sent - self._taken:,} bytes")

    @property
    def unread_bytes(self) -> int | None:
        """How much the other replica has yet to read of what was said to it; None where the link is away."""
        return self._sent - self._taken if self.dialer.is_open else None

    def flush(self) -> bool:
        """Send what was said. Returns whether there was anything."""
        self._unflushed = 0
        return self.dialer.flush()

    def receive(self) -> bool:
        """Take what has come. Returns whether anything of what was said may be lost."""
        is_lost = False
        for event in self.dialer.receive():
            if isinstance(event, Taken):
                self._taken = event.size
                while self._largest and self._largest[0][0] <= event.size:
                    self._largest.popleft()
            elif isinstance(event, LinkOpened):
                self._sent = self._taken = self._unflushed = 0
                self._largest.clear()
                is_lost |= self._has_dropped
                self._has_dropped = False
            else:
                is_lost = True
                self._log(event)
        return is_lost

    def tick(self, now: float) -> bool:
        """Call, ping, and notice silence. Returns whether anything of what was said may be lost."""
        lost = self.dialer.tick(now)
        for event in lost:
            self._log(event)
        return bool(lost)

    def _log(self, event: LinkLost) -> None:
        _log.info("the link to %s is lost: %s", self._name, event.reason)
