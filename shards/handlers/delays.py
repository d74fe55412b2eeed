"""Messages that wait for a time: delayed publishes, and delayed messages, which were returned with a delay.

Both lie in the store, in the order in which they are due, and nowhere else: a million of them take no memory. In memory
are only how many each queue has, and when to look next. When a delayed publish is due, it is appended to its queue as
if it came now; delayed messages have kept their place in the queue, and are ready there again.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import Timer
from shardmq.shards.storage.recovery import RecoveredQueue

FIRE_TIMERS: Final = 1000
FIRE_BYTES: Final = 4 << 20
"""What one look takes at most; the rest follows in the next pass, others get their turn in between."""

FIRE_FULL_BYTES: Final = 64 << 10
"""The same on a full disk: what is fired is written to its queue before its place is free."""

FIRE_GAP_MS: Final = 10
"""The least time between two looks at a queue: ten thousand a second are fired a hundred at a time."""

REFUSED_MS: Final = 1000
"""When a message that its queue had no place for is tried again."""

NOTE_SECONDS: Final = 1.0
"""How often the time is noted while something waits for it."""

Ranges = list[tuple[int, int]]


class DelayedMessages:
    """The messages of a shard that wait for a time.

    Args:
        state: the queues.

    Attributes:
        pending: how many there are.
        others: how many groups have messages that wait; they are kept with the group.
        unwritten: by queue, when the first is due of those that the store does not show yet.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._serial = 0
        self._noted_at = 0.0
        self.unwritten: dict[int, int] = {}
        self.pending = self.others = 0

    def scan(self, stored: Mapping[int, RecoveredQueue]) -> tuple[dict[int, tuple[int, int]], dict[int, Ranges]]:
        """At start, before there are queues: (messages that wait, first time) and delayed messages, by queue.

        Timers of delayed messages that are gone are removed: others will get the numbers of transient ones.
        """
        waiting: dict[int, tuple[int, int]] = {}
        delayed: dict[int, Ranges] = {}
        for timer in self._state.store.timers.all():
            found = stored.get(timer.queue) if timer.is_return else None
            if found is not None and not found.has_living(timer.serial, timer.serial + timer.messages):
                self._state.buffer.fire(timer)
                continue
            count, due_ms = waiting.get(timer.queue, (0, timer.due_ms))
            waiting[timer.queue] = count + timer.messages, due_ms
            if timer.is_return:
                delayed.setdefault(timer.queue, []).append((timer.serial, timer.serial + timer.messages))
            else:
                self._serial = max(self._serial, timer.serial)
        return waiting, {queue: sorted(ranges) for queue, ranges in delayed.items()}

    def adopt(self, hosted: HostedQueue, count: int, due_ms: int) -> None:
        """At start: take over how many messages of a queue wait, and when the first is due."""
        hosted.delayed = count
        self.pending += count
        self._expect(hosted, due_ms)

    def delay(self, hosted: HostedQueue, batch: RecordBatch, due_ms: int) -> None:
        """Append a batch to a queue later."""
        self._serial += 1
        durable = hosted.queue.declared.durable and batch.flags & PERSISTENT != 0
        self._wait(hosted, Timer(hosted.queue.id, due_ms, self._serial, batch.count, False, durable, batch))

    def publish(self, hosted: HostedQueue, batch: RecordBatch, now_ms: int) -> None:
        """Append a batch that is due. It was confirmed long ago: what a full queue refuses is tried again."""
        queue = hosted.queue
        batch.timestamp_ms = now_ms
        taken = queue.append(batch, hosted.consumers.credit()) if hosted.refuses else queue.append(batch)
        if taken < batch.count and not queue.arguments.dead_letters_refused:  # else it is a dead letter now
            self.delay(hosted, self._state.slicer.cut(batch, taken, batch.count), now_ms + REFUSED_MS)

    def delay_return(self, hosted: HostedQueue, ranges: Ranges, due_ms: int) -> None:
        """Make messages ready again later that a queue has delayed."""
        queue = hosted.queue
        for start, end in ranges:
            self._wait(hosted, Timer(queue.id, due_ms, start, end - start, True, queue.declared.durable))

    def retry(self, hosted: HostedQueue, ranges: Ranges) -> Ranges:
        """Send failed messages of a queue back after their next delay (x-retry-delays); return those that have none."""
        queue = hosted.queue
        delays_ms = queue.arguments.retry_delays_ms
        if delays_ms is None or not isinstance(queue, ConfiguredQueue):
            return ranges
        now_ms = self._state.clock.now_ms()
        spent: Ranges = []
        for start, end, count in [*queue.failures(ranges)]:
            if count < len(delays_ms):
                held = queue.delay_return([(start, end)], is_retry=True)
                self.delay_return(hosted, held, now_ms + delays_ms[count])
            else:
                spent.append((start, end))
        self._state.buffer.demand()  # the counts go to disk with the delays: no delay is given twice after a crash
        return spent

    def retire(self, hosted: HostedQueue) -> None:
        """Forget what waits of a queue that is deleted; `clear` removes it from the store."""
        self.pending -= hosted.delayed
        hosted.delayed = 0

    def clear(self, queue: int, count_max: int) -> int:
        """Delete some timers of a deleted queue; returns how many there were. Once in a pass."""
        timers = self._state.store.timers.of_queue(queue, count_max)
        for timer in timers:
            self._state.buffer.fire(timer)
        return len(timers)

    def note(self, now: float) -> None:
        """End a pass; note the time if that is due: after a restart of the machine it must not go back."""
        self.unwritten.clear()
        if (self.pending or self.others) and now - self._noted_at >= NOTE_SECONDS:
            self._noted_at = now
            self._state.buffer.note(self._state.clock.note())

    def _wait(self, hosted: HostedQueue, timer: Timer) -> None:
        self._state.buffer.wait(timer)
        hosted.delayed += timer.messages
        self.pending += timer.messages
        self.unwritten[timer.queue] = min(timer.due_ms, self.unwritten.get(timer.queue, timer.due_ms))
        self._expect(hosted, timer.due_ms)

    def _expect(self, hosted: HostedQueue, due_ms: int) -> None:
        look = hosted.timers_look
        if look is None or due_ms < look.due_ms:
            self._state.schedule.cancel(look)
            hosted.timers_look = self._state.schedule.at(due_ms, partial(self._look, hosted.queue.id))

    def _look(self, number: int) -> None:
        hosted = self._state.queues.get(number)
        if hosted is not None:
            hosted.timers_look = None
            self._fire(hosted)

    def _fire(self, hosted: HostedQueue) -> None:
        state, queue = self._state, hosted.queue
        now_ms = state.schedule.now_ms
        size = FIRE_BYTES if state.store.space.left > 0 else FIRE_FULL_BYTES
        timers, following = state.store.timers.due(queue.id, hosted.fired_ms, now_ms, FIRE_TIMERS, size)
        for timer in timers:
            state.buffer.fire(timer)
            hosted.fired_ms = timer.due_ms
            hosted.delayed -= timer.messages
            self.pending -= timer.messages
            if timer.batch is None:
                queue.end_delay([(timer.serial, timer.serial + timer.messages)])
            else:
                self.publish(hosted, timer.batch, now_ms)
        if timers:
            state.active[queue.id] = hosted
        unwritten = self.unwritten.get(queue.id)
        if unwritten is not None and (following is None or unwritten < following):
            following = unwritten
        if following is not None:
            # Never at a time that has come: in this very pass the store would show what was fired once more.
            self._expect(hosted, now_ms + 1 if following <= now_ms else max(following, now_ms + FIRE_GAP_MS))
