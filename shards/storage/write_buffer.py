"""What the passes of a shard have changed and not yet written, and the group commit.

Messages are written at the end of the pass they came in, where somebody waits for their confirm, and else a little
later, as settled messages are: most segments are settled whole within milliseconds, and then only their end is written.
After a crash in between, those messages are delivered again, marked redelivered. Declarations are written behind their
answer: the coordinator has them on disk.
"""

import math
import time
from typing import Final

from shardmq.errors import RowDamaged
from shardmq.limits import LETTER_PRODUCERS
from shardmq.runtime.clock import ClockNote
from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.shards.segments.body_cache import BodyCache
from shardmq.shards.segments.chunks import ChunkCache
from shardmq.shards.segments.compactable import Compactable
from shardmq.shards.segments.segment import NumberedBatch, Segment
from shardmq.shards.storage.entries import (
    Reservation,
    Sealed,
    SequenceSet,
    Staged,
    StagedPlace,
    StoredCursor,
    Timer,
)
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.shards.storage.schema import cursor_key
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.topology.entities import Queue as Declared

PUT_OFF_SECONDS: Final = 0.02
PUT_OFF_BYTES_MAX: Final = 64 << 10
"""How long messages may wait to be written that were published without confirms, and how many bytes of them. Where
consumers keep up, most are settled by then, and never written."""

SETTLED_SECONDS: Final = 0.05
"""How long settled messages may wait to be written, and what was declared."""


class WriteBuffer:
    """Changes that are to be written.

    Args:
        store: where to.
        memory_bytes: what bodies in memory may take.

    Attributes:
        cache: of bodies.
        chunks: what several readers of partitions get.
        read_once_bytes: bytes of segments that were read for one look each, since start.
        now: when this pass began, monotonic seconds.
        compactable: subqueues that the compactor may have something to do for.
        commit_seconds: how long commits took.
    """

    def __init__(self, store: Store, memory_bytes: int) -> None:
        self.store = store
        self.cache = BodyCache(memory_bytes)
        self.chunks = ChunkCache(memory_bytes // 2)
        self.read_once_bytes = 0
        self.now = time.monotonic()
        self.compactable: dict[Compactable, None] = {}
        self.commit_seconds = TimeHistogram()
        self._writes = WriteBatch()
        self._opened: list[Segment] = []
        self._put_off_at: float | None = None
        self._changed: dict[Segment, None] = {}
        self._settled: list[Segment] = []
        self._moved: dict[tuple[int, str], StoredCursor] = {}
        self._settled_at: float | None = None
        self._due = False
        self._settle_due = False
        self._may_follow = False

    def open(self, segment: Segment) -> None:
        """Note a segment that is filled in this pass."""
        self._opened.append(segment)

    def withhold(self) -> None:
        """Have what this pass delivers wait for its commit: a reader must not see an offset that may be given again."""
        self._due = True

    def change(self, segment: Segment) -> None:
        """Note a segment of which messages were settled, or delivered in vain."""
        self._changed[segment] = None
        if self._settled_at is None:
            self._settled_at = self.now

    def end(self, segment: Segment) -> None:
        """Note a segment of which all messages are settled, or are in other segments now."""
        self._changed.pop(segment, None)
        self.cache.remove(segment)
        segment.live = 0
        segment.batches = None
        if segment.stored:
            self._settled.append(segment)
            if self._settled_at is None:
                self._settled_at = self.now

    def rewrite(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace segments by others with the same live messages."""
        stored = old[0].stored
        for segment in old:
            self.end(segment)
        for segment in new:
            if not stored:
                self._opened.append(segment)
                continue
            self._writes.put.append(segment)
            segment.stored = True
            if segment.gone is not None or segment.counts is not None:
                self.change(segment)
            self.cache.add(segment)
        if stored:  # in one transaction: after a crash in between, messages would be there twice
            self._due = self._settle_due = True

    def mark(self, queue: int, subqueue: int, mark: int) -> None:
        """Raise the mark of a durable queue's subqueue, before the messages below it are delivered."""
        self._writes.marks[queue, subqueue] = mark
        self._due = True

    def unmark(self, queue: int, subqueue: int) -> None:
        """Delete the mark of a durable queue's subqueue."""
        self._writes.marks[queue, subqueue] = None
        self._due = True

    def declare(self, queue: Declared, identity: StoreIdentity | None = None) -> None:
        """Declare a durable queue; with an identity that knows its id, where that has changed.

        It may wait as what was settled may: the coordinator has it on disk, and tells it again in every session. With
        a flush of its own, the next declaration waited for the disk: 1.3 ms, not 0.94.
        """
        self._writes.queues.append(queue)
        if identity is not None:
            self._writes.identity = identity
        if self._settled_at is None:
            self._settled_at = self.now

    def drop(self, queue: int) -> None:
        """Delete a durable queue; its segments follow. It may be written behind the answer: `commit_behind`."""
        self._writes.dropped.append(queue)
        self._may_follow = True

    def clear(self, queue: int) -> None:
        """Note that nothing is left of a deleted queue."""
        self._writes.cleared.append(queue)
        self._may_follow = True

    def hasten(self) -> None:
        """Have what was deleted in this pass on disk before any answer."""
        self._due = self._due or self._may_follow

    def wait(self, timer: Timer) -> None:
        """Write a timer."""
        self._writes.timers.append(timer)
        self._due = True

    def fire(self, timer: Timer) -> None:
        """Delete a timer; what became of its messages is in the same commit."""
        self._writes.fired.append(timer)
        self._due = True

    def saw(self, queue: int, seen: SequenceSet) -> None:
        """Note which sequence numbers a durable queue has of a producer.

        They are written with the messages, or in their place, where those are settled in this pass; those of dead
        letters at once, as the shard they come from hands them over again without asking.
        """
        self._writes.producers[queue, seen.producer] = seen
        seen.is_due = True
        if seen.producer >= LETTER_PRODUCERS:
            self._due = True
        if self._settled_at is None:
            self._settled_at = self.now

    def forget(self, queue: int, producer: int) -> None:
        """Forget a producer of a queue."""
        self._writes.producers[queue, producer] = None
        self._due = True

    def stage(self, staged: Staged) -> None:
        """Write a staged batch."""
        self._writes.staged.append(staged)
        self._due = True

    def unstage(self, place: StagedPlace) -> None:
        """Delete a staged batch; what became of it is in the same commit."""
        self._writes.unstaged.append(place)
        self._due = True

    def seal(self, transaction: int, attempt: int, sealed: Sealed | None) -> None:
        """Write that an attempt is sealed; None deletes that, when its transaction is over."""
        self._writes.sealed[transaction, attempt] = sealed
        self._due = True

    def conclude(self, transaction: int, attempts: list[int] | None, ended: list[tuple[int, int]] | None) -> None:
        """Write that a transaction is decided, and whose messages are to join their queues; None when they have.

        `ended` are the numbers of all that are decided, where this one is new among them.
        """
        self._writes.concluding[transaction] = attempts
        if ended is not None:
            self._writes.ended = ended
        self._due = True

    def reserve(self, queue: int, name: str, reservation: Reservation | None) -> None:
        """Write a reservation; None deletes it."""
        self._writes.reservations[queue, name] = reservation
        self._due = True

    def move(self, queue: int, group: str, cursor: StoredCursor) -> None:
        """Note that a group acknowledged messages; they are written as other settled messages are."""
        self._moved[queue, group] = cursor
        if self._settled_at is None:
            self._settled_at = self.now

    def keep(self, queue: int, group: str, cursor: StoredCursor) -> None:
        """Write a group's cursor with this pass: something is answered or delivered that is not to be forgotten."""
        self._moved.pop((queue, group), None)
        self._writes.cursors[queue, group] = cursor
        self._due = True

    def replace_damaged(self, queue: int, group: str, cursor: StoredCursor) -> None:
        """Write a group's cursor in place of the damaged one, whose bytes are kept aside."""
        self.set_aside(cursor_key(queue, group))
        self.keep(queue, group, cursor)

    def set_aside(self, written: bytes) -> None:
        """Take the damaged cursor that was written at a key away; its bytes are kept aside."""
        self._writes.replaced += self.store.damaged_cursors(written)
        self._due = True

    def lose(self, queue: int, group: str) -> None:
        """Delete a group's cursor."""
        self._moved.pop((queue, group), None)
        self._writes.cursors[queue, group] = None
        self._due = True

    def note(self, clock: ClockNote) -> None:
        """Write what time it is."""
        self._writes.clock = clock
        self._due = True

    def note_damage(self, damage: RowDamaged) -> None:
        """Write that a queue is out of service, so that the next start knows without looking."""
        self._writes.damaged.append(damage)
        self._due = True

    def identify(self, identity: StoreIdentity) -> None:
        """Write whose the store is."""
        self._writes.identity = identity
        self._due = True

    def demand(self) -> None:
        """Have settled messages written with this pass: somebody waits for that."""
        if self._settled_at is not None:
            self._due = self._settle_due = True

    @property
    def has_messages_alone(self) -> bool:
        """Whether messages of this pass are to be written, and nothing else that could not wait.

        Settled messages may be written along. Numbers of producers may not: with them, a message is the same when it
        is published again.
        """
        if self._due or self._writes.producers:
            return False
        return bool([segment for segment in self._opened if segment.durable and segment.live])

    @property
    def named(self) -> set[int]:
        """Ids of the queues of which the next commit writes anything but their declarations."""
        writes = self._writes
        keyed = writes.marks, writes.producers, writes.reservations, writes.cursors, self._moved
        return {
            *(segment.queue for segment in (*self._opened, *writes.put)),
            *(queue for rows in keyed for queue, _ in rows),
            *(timer.queue for timer in writes.timers),
            *(queue for staged in writes.staged for queue in staged.queues),
        }

    def batches(self, segment: Segment) -> list[NumberedBatch]:
        """Return the bodies of a segment, and keep them in memory."""
        batches = segment.batches
        if batches is None:
            batches = segment.batches = self.store.read(segment, self.cache.shared)
            self.cache.add(segment)
        return batches

    def read_once(self, segment: Segment) -> list[NumberedBatch]:
        """Return the bodies of a segment without keeping them: a look through a queue must not evict what flows."""
        if segment.batches is not None:
            return segment.batches
        self.read_once_bytes += segment.bytes
        return self.store.read(segment, self.cache.shared)

    @property
    def due_at(self) -> float:
        """Monotonic time at which something must be written; infinite when nothing must."""
        put_off, settled = self._put_off_at, self._settled_at
        if settled is None:
            return math.inf if put_off is None else put_off + PUT_OFF_SECONDS
        settled += SETTLED_SECONDS
        return settled if put_off is None else min(put_off + PUT_OFF_SECONDS, settled)

    def put_off(self) -> bool:
        """Have the messages of this pass written with a later one, if they alone are to be written, and that is soon.

        Called in the place of `commit`, where nobody waits for it.

        Returns:
            Whether it is so; else `commit` follows.
        """
        opened = self._opened = [segment for segment in self._opened if segment.live]
        if not opened:
            self._put_off_at = None
            return False
        if self._due or self._writes.producers or self.cache.bytes > self.cache.bytes_max:
            return False
        if sum([segment.bytes for segment in opened]) > PUT_OFF_BYTES_MAX:
            return False
        if self._put_off_at is None:
            self._put_off_at = self.now
        return self.now - self._put_off_at < PUT_OFF_SECONDS and not self._is_settling

    def commit(self) -> None:
        """Write what cannot wait, and with it, now and then, what can; called at the end of a pass."""
        writes = self._writes
        self._seal(writes)
        surplus = self.cache.surplus()
        if self.store.space.left <= 0:
            surplus = self._stored_of(surplus)
        for segment in surplus:
            if not segment.stored:
                writes.put.append(segment)
                segment.stored = True
                self._due = True
        if self._is_settling:
            self._due = self._settle_due = True
        if self._due:
            self._write(writes)
        for segment in surplus:
            segment.batches = None

    def commit_behind(self) -> None:
        """Write what was deleted in this pass, if that alone was not worth a commit before the answers."""
        if self._may_follow:
            self._write(self._writes)

    @property
    def _is_settling(self) -> bool:
        return self._settled_at is not None and self.now - self._settled_at >= SETTLED_SECONDS

    def _stored_of(self, surplus: list[Segment]) -> list[Segment]:
        """Return the segments that are stored: on a full disk, the others stay in memory."""
        for segment in surplus:
            if not segment.stored:
                self.cache.add(segment)
        return [segment for segment in surplus if segment.stored]

    def _seal(self, writes: WriteBatch) -> None:
        numbered: set[int] = set()
        for segment in self._opened:
            if not segment.live:  # delivered without acknowledgements: its numbers are to be on disk before it goes
                if not self._due and writes.producers and segment.durable:
                    numbered = numbered or {queue for queue, _ in writes.producers}
                    self._due = segment.queue in numbered
                continue
            self.cache.add(segment)
            if segment.durable:
                writes.put.append(segment)
                segment.stored = True
                self._due = True
        self._opened.clear()
        self._put_off_at = None

    def _write(self, writes: WriteBatch) -> None:
        if self._settle_due:
            writes.delete, self._settled = self._settled, []
            writes.gone = [segment for segment in self._changed if segment.stored and segment.durable]
            self._changed.clear()
            writes.cursors.update(self._moved)
            self._moved.clear()
            self._settled_at = None
        writes.put = [segment for segment in writes.put if segment.live]
        began = time.monotonic()
        self.store.write(writes)
        self.commit_seconds.add(time.monotonic() - began)
        for seen in writes.producers.values():
            if seen is not None:
                seen.is_due = False
        self._writes = WriteBatch()
        self._due = self._settle_due = self._may_follow = False
