"""A group's cursor against a table of every message, through the real store, with clean and dirty restarts anywhere."""

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardmq.message.properties import Properties
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.consumers.consumer import NONE_FRESH
from shardmq.shards.storage.entries import CursorRow, GroupSettings
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.group_cursor import GroupCursor
from shardmq.shards.topics.partition import Partition
from shardmq.shards.topics.tag_filter import TAG
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import StoreRoom

START_MS = 1_700_000_000_000
TAGS = (None, "a", "b")
HELD, READY, DELAYED, ACKED, GONE = "held", "ready", "delayed", "acked", "gone"


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    return list(RangeSet([(offset, offset + 1) for offset in sorted(offsets)]))


class GroupMachine(RuleBasedStateMachine):
    """Rules do the same to a cursor and to a table of what became of each message."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.room = StoreRoom(self.in_memory)
        self.tags: list[str | None] = []
        self.status: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.delivered: set[int] = set()
        self.due: dict[int, int] = {}
        self.now = 100.0
        self.clock = SteadyClock(START_MS)
        self.is_exact = True  # no crash has made the mark run ahead
        self.has_members = False

    @initialize(
        shared=st.booleans(),
        limit=st.sampled_from([None, 0, 1]),
        wanted=st.sampled_from([TAGS, ("a",), ("b", None)]),
        bytes_max=st.sampled_from([None, 300]),
        begin=st.integers(0, 5),
    )
    def start(
        self, shared: bool, limit: int | None, wanted: tuple[str | None, ...], bytes_max: int | None, begin: int
    ) -> None:
        tags = None if wanted is TAGS else tuple(tag for tag in wanted if tag is not None)
        self.wanted = wanted
        self.settings = GroupSettings(shared, limit, tags=tags, has_untagged=tags is not None and None in wanted)
        arguments = {"x-queue-type": "stream", **({"x-max-length-bytes": bytes_max} if bytes_max else {})}
        self.declared = Declared("/", "s", 7, 0, arguments=arguments)
        self.open()
        self.buffer.declare(self.declared)
        self.append([None] * 6)
        self.group = GroupCursor(self.partition, self.buffer, "g", CursorRow(begin, 1, begin, self.settings))
        self.group.keep()
        self.write()
        self.begin = begin

    def open(self) -> None:
        self.store = self.room.open()
        self.buffer = WriteBuffer(self.store, 3000)
        self.buffer.now = self.now
        stored = stored_queues(self.store.load()).get(7, RecoveredQueue())
        self.partition = Partition(self.declared, self.buffer, self.clock, stored)
        if "g" in stored.cursors:
            self.group = GroupCursor(self.partition, self.buffer, "g", stored.cursors["g"])

    def write(self) -> None:
        """End a pass, and have everything on disk."""
        self.now += 1
        self.buffer.now = self.now
        self.partition.seal()
        self.buffer.demand()
        self.buffer.commit()
        self.buffer.commit_behind()
        self.written = {offset: status for offset, status in self.status.items() if status in (ACKED, DELAYED)}
        self.written_counts = dict(self.counts)
        self.written_due = dict(self.due)

    def join(self) -> None:
        self.group.is_consumed = self.has_members = True
        self.group.open()

    def lose(self) -> None:
        """What retention dropped is not delivered any more; who holds it settles it still."""
        for offset, status in list(self.status.items()):
            if offset < self.partition.first and status in (READY, DELAYED):
                self.status[offset] = GONE
                self.due.pop(offset, None)
        for offset in range(self.begin, self.partition.first):
            self.status.setdefault(offset, GONE)
            if self.status[offset] != HELD:
                self.counts.pop(offset, None)

    def fresh(self) -> Iterator[int]:
        """Messages that no member has, in order."""
        start = max(self.begin, self.partition.first)
        return (
            offset
            for offset in range(start, len(self.tags))
            if offset not in self.status and self.tags[offset] in self.wanted
        )

    def may_come(self) -> list[int]:
        """Messages that are ready, in order: those that came back, else fresh ones."""
        delayed = min(self.due, default=None) if not self.settings.is_shared else None
        returned = sorted(offset for offset, status in self.status.items() if status == READY)
        if returned:
            return [offset for offset in returned if delayed is None or offset < delayed]
        return list(self.fresh()) if delayed is None else []

    @rule(tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=12), is_last=st.booleans())
    def publish(self, tags: list[str | None], is_last: bool) -> None:
        self.append(tags)
        if is_last:
            self.write()

    def append(self, tags: list[str | None]) -> None:
        first = len(self.tags)
        owns = [Properties(headers={TAG: tag}) if tag else None for tag in tags]
        bodies = [b"%d" % (first + place) for place in range(len(tags))]
        packed = b"".join([pack_many([body], own) for body, own in zip(bodies, owns, strict=True)])
        self.partition.append(RecordBatch("ex", "key", 1, self.clock.now_ms(), 9, first, len(tags), packed))
        self.partition.seal()
        self.buffer.commit()  # what is not on disk is not delivered
        self.tags += tags

    @rule(limit=st.integers(1, 20), room=st.sampled_from([0, 30, 1 << 20]))
    def take(self, limit: int, room: int) -> None:
        self.join()
        self.lose()
        deliveries = self.group.open()
        for _ in range(1 + len(self.tags)):
            if deliveries.ready or not deliveries.is_behind:
                break
        expected = self.may_come()
        assert bool(deliveries.ready) is bool(expected), (deliveries.ready, expected)
        taken = 0
        for first, redelivered, count, batch in deliveries.take(limit, room, alone=True):
            for offset in range(first, first + batch.count):
                assert offset == expected[taken]
                assert count == self.counts.get(offset, 0)
                assert redelivered or offset not in self.delivered
                assert not (self.is_exact and redelivered) or offset in self.delivered
                self.status[offset] = HELD
                self.delivered.add(offset)
                taken += 1
        assert bool(taken) is bool(expected)
        assert taken <= limit
        self.buffer.commit()  # the mark is on disk before they leave

    def some(self, shares: list[float]) -> list[int]:
        held = sorted(offset for offset, status in self.status.items() if status == HELD)
        return sorted({held[int(share * len(held))] for share in shares}) if held else []

    shares = st.lists(st.floats(0, 0.999), min_size=1, max_size=8)

    @precondition(lambda self: self.has_members)
    @rule(shares=shares)
    def settle(self, shares: list[float]) -> None:
        chosen = self.some(shares)
        self.group.open().settle(ranges_of(chosen))
        for offset in chosen:
            self.status[offset] = ACKED
            self.counts.pop(offset, None)

    def fail(self, chosen: list[int]) -> list[int]:
        """Messages were delivered in vain; returns those that come again."""
        again = []
        for offset in chosen:
            if self.settings.delivery_limit is not None:
                self.counts[offset] = self.counts.get(offset, 0) + 1
                if self.counts[offset] > self.settings.delivery_limit:
                    self.status[offset] = ACKED
                    del self.counts[offset]
                    continue
            again.append(offset)
        return again

    @precondition(lambda self: self.has_members)
    @rule(shares=shares)
    def requeue(self, shares: list[float]) -> None:
        chosen = self.some(shares)
        self.group.open().requeue(ranges_of(chosen))
        for offset in self.fail(chosen):
            self.status[offset] = READY

    @precondition(lambda self: self.has_members)
    @rule(shares=shares, delay_ms=st.integers(1, 3000))
    def delay(self, shares: list[float], delay_ms: int) -> None:
        chosen = self.some(shares)
        due_ms = self.clock.now_ms() + delay_ms
        self.group.open().delay(ranges_of(chosen), due_ms)
        for offset in self.fail(chosen):
            self.status[offset] = DELAYED
            self.due[offset] = due_ms

    @rule(milliseconds=st.integers(1, 2000))
    def wait(self, milliseconds: int) -> None:
        self.clock._offset_ns += milliseconds * 10**6
        now_ms = self.clock.now_ms()
        if self.group.deliveries is None:
            assert not self.due
            return
        self.group.deliveries.end_delays(now_ms)
        for offset in [offset for offset, due_ms in self.due.items() if due_ms <= now_ms]:
            self.status[offset] = READY
            del self.due[offset]
        self.group.close()
        self.rest()

    @rule(share=st.floats(0, 1))
    def commit(self, share: float) -> None:
        partition = self.partition
        self.lose()
        offset = partition.first + round(share * (partition.next - partition.first))
        if offset < self.group.offset:
            return
        self.group.commit(offset)
        for place in range(self.begin, offset):
            if self.status.get(place) != GONE:
                self.status[place] = ACKED
            self.counts.pop(place, None)
            self.due.pop(place, None)
        self.rest()
        self.write()

    @rule(share=st.floats(0, 1))
    def reset(self, share: float) -> None:
        partition = self.partition
        offset = partition.first + round(share * (partition.next - partition.first))
        self.group.reset(offset)
        self.begin = offset
        self.status.clear()
        self.counts.clear()
        self.due.clear()
        self.delivered.clear()
        self.is_exact = True
        self.write()

    @precondition(lambda self: self.has_members)
    @rule()
    def leave(self) -> None:
        held = sorted(offset for offset, status in self.status.items() if status == HELD)
        if held:
            self.group.open().put_back(ranges_of(held), NONE_FRESH)
        for offset in held:
            self.status[offset] = READY
        self.group.is_consumed = self.has_members = False
        self.group.close()
        self.rest()

    def rest(self) -> None:
        """Without members and delays, what is ready comes in one row with what is fresh."""
        if not self.has_members and not self.due:
            assert self.group.deliveries is None
            self.forget()

    def forget(self) -> None:
        for offset, status in list(self.status.items()):
            if status in (READY, HELD):
                del self.status[offset]

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.group.mark_exactly()
            self.write()
        else:
            self.is_exact = False
        self.lose()
        gone = {offset: status for offset, status in self.status.items() if status == GONE}
        # What was settled since the last write may have been written or not, as it fell: the cursor says.
        row = self.group.row()
        self.store.close()
        self.open()
        found = self.group.row()
        if is_clean:
            assert (found.offset, found.acked, found.counts) == (row.offset, row.acked, row.counts)
        acked = RangeSet([(0, found.offset)])
        for start, end in found.acked:
            acked.add(found.offset + start, found.offset + end)
        for offset, status in self.written.items():
            assert status != ACKED or offset in acked, "what was acknowledged on disk comes again"
        for offset in range(self.begin, len(self.tags)):
            now = self.status.get(offset)
            if offset in acked and now not in (ACKED, GONE) and self.tags[offset] in self.wanted:
                assert offset < self.partition.first, "what nobody acknowledged is skipped"
        self.counts = {offset: count for start, end, count in found.counts for offset in range(start, end)}
        self.due = {offset: due_ms for due_ms, start, end in found.delays for offset in range(start, end)}
        wanted = range(self.begin, len(self.tags))
        self.status = {offset: ACKED for offset in wanted if offset in acked and self.status.get(offset) == ACKED}
        self.status.update(gone)
        self.status.update(dict.fromkeys(self.due, DELAYED))
        self.has_members = False
        self.write()

    @invariant()
    def nothing_is_skipped(self) -> None:
        if not hasattr(self, "begin"):
            return
        floor = self.group.floor
        for offset in range(self.begin, min(floor, len(self.tags))):
            is_done = self.status.get(offset) in (ACKED, GONE) or offset < self.partition.first
            assert is_done or self.tags[offset] not in self.wanted, f"{offset} is below the floor {floor}"
        deliveries = self.group.deliveries
        if deliveries is not None:
            unsettled = {offset for start, end in deliveries.unsettled for offset in range(start, end)}
            first = self.partition.first
            expected = {offset for offset, status in self.status.items() if status in (HELD, READY, DELAYED)}
            assert {each for each in unsettled if each >= first} == {each for each in expected if each >= first}
            assert deliveries.delayed >= len([offset for offset in self.due if offset >= first])

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.room.remove()


class InMemory(GroupMachine):
    """The same on a store in memory."""

    in_memory = True


def test_what_was_passed_over_since_a_crash_is_written_at_a_clean_stop() -> None:
    """The mark says nothing of it: after a crash it is ahead of all that is read."""
    state = InMemory()
    state.start(shared=False, limit=None, wanted=("a",), bytes_max=None, begin=0)
    state.publish(tags=["a"], is_last=False)
    state.publish(tags=[None], is_last=False)
    state.take(limit=1, room=0)
    state.restart(is_clean=False)
    state.take(limit=1, room=0)
    state.take(limit=1, room=0)
    assert state.group.row().acked == [(1, 2)]
    state.restart(is_clean=True)
    state.teardown()


TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
