"""What a watcher knows of the keys with a prefix, without I/O.

It learns from two sides, a stream of events and readings of the whole, and combines them by revisions. Whatever comes
late, twice or in no order, it does not go back; and whatever a stream loses, the next reading has.
"""

from dataclasses import dataclass

from shardmq.replication.etcd.messages import KeyValue, RangeAnswer, WatchAnswer


@dataclass(frozen=True, slots=True)
class Change:
    """A key has a new value, or none any more.

    Attributes:
        key: its name.
        value: None where it is deleted.
        revision: in which that was; of a deletion that was not seen happening, in which it was missed.
    """

    key: bytes
    value: bytes | None
    revision: int


class WatchedPrefix:
    """The keys with a prefix, as known so far.

    Attributes:
        revision: all up to here is known; a stream goes on behind it.
        streamed: the newest revision that the stream has brought.
    """

    __slots__ = ("_revisions", "revision", "streamed")

    def __init__(self) -> None:
        self.revision = 0
        self.streamed = 0
        self._revisions: dict[bytes, int] = {}

    def read(self, answer: RangeAnswer) -> list[Change]:
        """Take a reading of all keys. One that is older than what is known tells nothing."""
        if answer.header.revision < self.revision:
            return []
        changes = [change for kv in answer.kvs if (change := self._put(kv))]
        there = {kv.key for kv in answer.kvs}
        for key in [key for key in self._revisions if key not in there]:
            del self._revisions[key]
            changes.append(Change(key, None, answer.header.revision))
        self.revision = answer.header.revision
        return sorted(changes, key=lambda change: change.revision)

    def look(self, answer: RangeAnswer) -> list[Change] | None:
        """Take a reading of what was written since `revision`.

        Returns:
            What is new in it; None where a key is gone, so that all must be read.
        """
        if answer.header.revision < self.revision:
            return []
        if answer.count != len(self._revisions.keys() | {kv.key for kv in answer.kvs}):
            return None
        changes = [change for kv in answer.kvs if (change := self._put(kv))]
        self.revision = answer.header.revision
        return sorted(changes, key=lambda change: change.revision)

    def receive(self, answer: WatchAnswer) -> list[Change]:
        """Take a message of the stream."""
        changes = []
        for event in answer.events:
            kv = event.kv
            self.streamed = max(self.streamed, kv.mod_revision)
            if kv.mod_revision <= self.revision:
                continue  # a reading had it
            if event.type == "PUT":
                self._revisions[kv.key] = kv.mod_revision
                changes.append(Change(kv.key, kv.value, kv.mod_revision))
            elif self._revisions.pop(kv.key, None) is not None:
                changes.append(Change(kv.key, None, kv.mod_revision))
        # The header may be ahead of events that are still to come.
        self.revision = max([self.revision, *(event.kv.mod_revision for event in answer.events)])
        return changes

    def _put(self, kv: KeyValue) -> Change | None:
        if kv.mod_revision <= self._revisions.get(kv.key, 0):
            return None
        self._revisions[kv.key] = kv.mod_revision
        return Change(kv.key, kv.value, kv.mod_revision)
