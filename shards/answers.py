"""What leaves a shard at the end of a pass: some of it before the commit, the rest behind it, and some with the next.

    apply ─► deliver ─┬───────────────────────► commit ─► answer, confirm, deliver
                      ├► deliver what may ─────► commit ─► confirm ─ ─ ─► or with what is said next
                      └► deliver, confirm ─ ─ ─► commit with what is committed next, if nobody asked for confirms

Nothing else sends what a pass has posted: what it rests on is on disk, or early_deliveries.py says why it need not be.
"""

import math

from shardmq.bus.listener import Listener
from shardmq.bus.messages.shard import ToShard
from shardmq.shards.early_deliveries import (
    EARLY,
    LATE,
    LATE_SECONDS,
    Events,
    may_be_confirmed_late,
    may_be_written_late,
    may_leave_early,
)
from shardmq.shards.handlers.publish import Publishing
from shardmq.shards.storage.write_buffer import WriteBuffer


class Answers:
    """Sends what a pass has to say.

    Args:
        buffer: what it writes.
        publishing: what it confirms.
        listener: whom it says it to.

    Attributes:
        due_at: monotonic time at which something must be sent at the latest; infinite when nothing must.
    """

    def __init__(self, buffer: WriteBuffer, publishing: Publishing, listener: Listener[ToShard]) -> None:
        self._buffer = buffer
        self._publishing = publishing
        self._listener = listener
        self._was_early = self._is_put_off = False
        self.due_at = math.inf

    def send_early(self, events: Events) -> None:
        """Send deliveries that may leave before the commit of the pass in which this has come, unless it is put off."""
        self._is_put_off = may_be_written_late(events) and self._buffer.put_off()
        if not self._is_put_off and may_leave_early(events) and self._buffer.has_messages_alone:
            self._was_early = self._listener.flush_all_of(EARLY)

    def commit(self, events: Events, is_small: bool) -> bool:
        """Commit a pass, at once or with a later one, and send what it has to say.

        Args:
            events: what has come in it.
            is_small: whether that is little.

        Returns:
            Whether anything was sent.

        Raises:
            StoreUnwritable: what was to be written may not be on disk. The process must end.
        """
        was_early, self._was_early = self._was_early, False
        is_put_off, self._is_put_off = self._is_put_off, False
        may_be_late = was_early and is_small and may_be_confirmed_late(events) and not self._listener.has_posted
        if not (is_put_off and self._buffer.put_off()):
            self._buffer.commit()
        has_sent = self._confirm(may_be_late)
        self._buffer.commit_behind()  # a flush of the disk that nobody waits for
        return has_sent or was_early

    def _confirm(self, may_be_late: bool) -> bool:
        """Confirm what is on disk, and send all that was posted, or all but that; returns whether anything was sent."""
        now = self._buffer.now
        if self._publishing.confirm():
            self.due_at = now + LATE_SECONDS if may_be_late else math.inf
        elif now >= self.due_at:
            self.due_at = math.inf
        return self._listener.flush() if self.due_at == math.inf else self._listener.flush_all_but(LATE)
