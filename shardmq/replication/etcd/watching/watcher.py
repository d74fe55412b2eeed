"""Keeps a watched prefix up to date, whatever breaks.

A watcher reads all keys, then follows a stream of events, and reads again what may be new every second. etcd's own
sign of life on a stream (`progress_notify`) comes every ten minutes, and not at all from a member that is frozen or cut
off from the others, to which a stream looks healthy for ever. So it is the reading that tells whether a stream lives.
"""

from collections.abc import Callable
from typing import Final

from shardmq.replication.etcd.answers import Failure, WatchStream
from shardmq.replication.etcd.client import EtcdClient, Stream
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.messages import Range, RangeAnswer, prefix_end, range_request, watch_request
from shardmq.replication.etcd.watching.looks import READ_SECONDS, Looks
from shardmq.replication.etcd.watching.watched_prefix import Change, WatchedPrefix
from shardmq.runtime.clock import boottime

PAUSE_SECONDS: Final = 0.25
"""Before a stream is opened again, or a reading that failed is tried again."""


class Watcher:
    """Watches all keys with a prefix.

    Args:
        client: of etcd.
        looks: by which it looks for what is new.
        prefix: of the keys.
        changed: called from the client's `turn` with what has changed, in order; at first, once, with all there is,
            which may be nothing.

    Attributes:
        confirmed: when the last reading that showed all to be known was sent, by `boottime`; 0 before the first one.
        fault: why the last reading failed; None where it did not.
    """

    def __init__(
        self, client: EtcdClient, looks: Looks, prefix: bytes, changed: Callable[[list[Change]], None]
    ) -> None:
        self.confirmed = 0.0
        self.fault: EtcdError | None = None
        self._client = client
        self._looks = looks
        self._start, self._end = prefix, prefix_end(prefix)
        self._changed = changed
        self._known = WatchedPrefix()
        self._stream: Stream | None = None
        self._reader = WatchStream()
        self._owed = 0
        self._is_reading = False
        self._is_closed = False
        self._read()
        looks.add(self)

    @property
    def revision(self) -> int:
        """All up to here is known."""
        return self._known.revision

    def close(self) -> None:
        """End it; nothing is called back any more."""
        self._is_closed = True
        self._looks.remove(self)
        if self._stream is not None:
            self._stream.end()

    def _read(self) -> None:
        """Read all keys."""
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            asked = boottime()
            request = range_request(self._start, self._end)
            self._client.ask(request, asked + READ_SECONDS, lambda outcome: self._has_read(asked, outcome))

    def _has_read(self, asked: float, outcome: RangeAnswer | EtcdError) -> None:
        self._is_reading = False
        if self._is_closed:
            return
        if isinstance(outcome, EtcdError):
            self.fault = outcome
            self._client.later(PAUSE_SECONDS, self._read)
            return
        is_first = not self.confirmed
        self._confirm(asked, outcome)
        changes = self._known.read(outcome)
        if changes or is_first:
            self._changed(changes)
        if self._stream is None:
            self._follow()

    def _confirm(self, asked: float, answer: RangeAnswer) -> None:
        if answer.header.revision >= self._known.revision:
            self.confirmed = max(self.confirmed, asked)
            self.fault = None

    def _follow(self) -> None:
        """Open the stream, behind what is known."""
        if self._stream is None and not self._is_closed:
            self._reader = WatchStream()
            self._owed = 0
            request = watch_request(self._start, self._end, self._known.revision + 1)
            self._stream = self._client.follow(request, self._receive, self._has_ended)

    def _receive(self, data: bytes) -> None:
        for message in self._reader.receive(data):
            if isinstance(message, Failure):
                self._reopen()
                return
            if changes := self._known.receive(message):
                self._changed(changes)
            if self._is_closed:
                return
            if message.canceled:
                self._reopen(is_compacted=message.compact_revision > 0)
                return

    def _has_ended(self, _: EtcdError) -> None:
        self._stream = None
        self._client.later(PAUSE_SECONDS, self._follow)

    def _reopen(self, is_compacted: bool = False) -> None:
        """The member has ended the stream, or it is of no use."""
        if self._stream is not None:
            self._stream.end() if is_compacted else self._stream.leave()
            self._stream = None
        if is_compacted:
            self._read()  # which opens the stream behind what it has found
        else:
            self._client.later(PAUSE_SECONDS, self._follow)

    def next_look(self) -> Range | None:
        """What may be new; a stream that has not brought what the last look found is given up."""
        if self._owed > self._known.streamed and self._stream is not None:
            self._reopen()
        if not self.confirmed or self._is_reading:
            return None
        return Range(self._start, self._end, self._known.revision + 1)

    def has_looked(self, asked: float, outcome: RangeAnswer | EtcdError) -> None:
        """Take what is new."""
        if self._is_closed:
            return
        if isinstance(outcome, EtcdError):
            self.fault = outcome
            return
        changes = self._known.look(outcome)
        if changes is None:
            self._owed = self._known.revision + 1
            self._read()
            return
        self._confirm(asked, outcome)
        if changes:
            self._owed = changes[-1].revision
            self._changed(changes)
