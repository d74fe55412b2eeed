"""The queue's state machine against a plain list, through the real store, with clean and dirty restarts anywhere."""

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import StoreRoom

SMALL_STORE_BYTES = 3000
"""A memory budget so small that bodies are dropped, read back and spilled all the time."""


class Expected:
    """What the model knows of one message."""

    def __init__(self, body: bytes, persistent: bool) -> None:
        self.body = body
        self.persistent = persistent
        self.delivered = False
        self.held = False


class QueueMachine(RuleBasedStateMachine):
    """Rules do the same to a Queue and to a list of what should be in it, oldest first."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.room = StoreRoom(self.in_memory)
        self.declared = Declared("/", "q", 7, 0)
        self.messages: list[Expected] = []
        self.numbers: dict[int, Expected] = {}
        self.held = RangeSet()
        self.fresh_from = 0
        self.serial = 0
        self.dirty = False
        self.now = 100.0

    @initialize(memory=st.sampled_from([SMALL_STORE_BYTES, 1 << 20]))
    def start(self, memory: int) -> None:
        self.memory = memory
        self.open()
        if not self.store.load().queues:
            self.buffer.declare(self.declared)
            self.buffer.demand()
            self.buffer.commit()

    def open(self) -> None:
        self.store = self.room.open()
        contents = self.store.load()
        self.buffer = WriteBuffer(self.store, self.memory)
        self.buffer.now = self.now
        self.compactor = Compactor(self.buffer)
        stored = stored_queues(contents).get(7, RecoveredQueue())
        self.queue = PlainQueue(self.declared, self.buffer, SteadyClock(), stored)

    def commit(self) -> None:
        self.now += 0.02
        self.queue.seal()
        self.buffer.commit()
        self.buffer.now = self.now

    @rule(counts=st.lists(st.integers(1, 30), min_size=1, max_size=4), persistent=st.booleans(), late=st.booleans())
    def publish(self, counts: list[int], persistent: bool, late: bool) -> None:
        for count in counts:
            bodies = [b"%d" % (self.serial + i) * (1 + (self.serial + i) % 7) for i in range(count)]
            flags = PERSISTENT if persistent else 0
            self.queue.append(RecordBatch("ex", "key", flags, 5, 9, self.serial, count, pack_many(bodies)))
            self.messages += [Expected(body, persistent) for body in bodies]
            self.serial += count
        if not late:
            self.commit()

    @rule(limit=st.integers(1, 60), room=st.sampled_from([0, 20, 200, 1 << 20]))
    def take(self, limit: int, room: int) -> None:
        deliveries = self.queue.take(limit, room, alone=True)
        waiting = [message for message in self.messages if not message.held]
        if waiting:
            assert deliveries
        taken = 0
        size = 0
        for first, redelivered, _, batch in deliveries:
            size += len(batch.records)
            for offset, record in enumerate(unpack(batch.records, batch.count)):
                message = waiting[taken]
                assert record.body == message.body
                if not redelivered:
                    assert not message.delivered
                elif not self.dirty:
                    assert message.delivered
                assert first + offset not in self.held
                message.held = message.delivered = True
                self.numbers[first + offset] = message
                taken += 1
            self.held.add(first, first + batch.count)
            if redelivered:
                self.fresh_from = max(self.fresh_from, first + batch.count)
        assert taken <= limit
        assert size <= room or taken == 1
        if size <= room and taken < min(limit, len(waiting)):
            rest = waiting[taken]
            assert size + len(pack_many([rest.body])) > room
        self.commit()

    def pick(self, data: st.DataObject) -> list[tuple[int, int]]:
        numbers = sorted(self.numbers)
        if not numbers:
            return []
        start = data.draw(st.sampled_from(numbers))
        return self.held.within(start, start + data.draw(st.integers(1, 40)))

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        ranges = self.pick(data)
        for start, end in ranges:
            self.held.remove(start, end)
            for number in range(start, end):
                self.messages.remove(self.numbers.pop(number))
        self.queue.settle(ranges)
        if data.draw(st.booleans()):
            self.commit()

    @rule(data=st.data())
    def ack_scattered(self, data: st.DataObject) -> None:
        step = data.draw(st.integers(2, 4))
        for number in sorted(self.numbers)[::step]:
            self.held.remove(number, number + 1)
            self.messages.remove(self.numbers.pop(number))
            self.queue.settle([(number, number + 1)])
        self.commit()

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        ranges = self.pick(data)
        for start, end in ranges:
            self.held.remove(start, end)
            for number in range(start, end):
                self.numbers.pop(number).held = False
        self.queue.requeue(ranges)
        self.commit()

    @rule(data=st.data(), is_all=st.booleans())
    def put_back(self, data: st.DataObject, is_all: bool) -> None:
        ranges = list(self.held) if is_all else self.pick(data)
        if not ranges:
            return
        last, cursor = ranges[-1], self.queue.cursor
        for start, end in ranges:
            self.held.remove(start, end)
            for number in range(start, end):
                message = self.numbers.pop(number)
                message.held = False
                if (start, end) == last and end == cursor and number >= self.fresh_from:
                    message.delivered = False
        self.queue.put_back(ranges, self.fresh_from)
        self.commit()

    @rule()
    def purge(self) -> None:
        count, steps = self.queue.purge()
        assert count == sum(not message.held for message in self.messages)
        assert self.queue.ready == 0
        assert sum(steps) >= 0
        self.messages = [message for message in self.messages if message.held]
        self.buffer.demand()
        self.commit()

    @rule()
    def collect(self) -> None:
        self.commit()
        self.now += 2
        self.buffer.now = self.now
        for _ in range(2):
            self.queue.young = max(self.queue.young, 2)
            self.buffer.compactable[self.queue] = None
            self.compactor.work()
            self.commit()

    @rule()
    def merge_everything(self) -> None:
        self.commit()
        segments = self.queue.index.segments
        if segments and len({(segment.durable, segment.stored) for segment in segments}) == 1:
            self.compactor._rewrite(self.queue, 0, len(segments))
            self.commit()

    @rule()
    def restart_cleanly(self) -> None:
        self.queue.requeue(list(self.held))
        self.queue.mark_exactly()
        self.buffer.demand()
        self.commit()
        self.restarted()

    @rule()
    def restart_dirty(self) -> None:
        self.now += 1
        self.buffer.now = self.now
        self.commit()
        self.restarted()
        self.dirty = True

    def restarted(self) -> None:
        self.store.close()
        self.open()
        self.messages = [message for message in self.messages if message.persistent]
        for message in self.messages:
            message.held = False
        self.numbers.clear()
        self.held.clear()

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue = self.queue
        held = sum(message.held for message in self.messages)
        assert (queue.valid, queue.ready, queue.unacked) == (len(self.messages), len(self.messages) - held, held)
        segments = queue.index.segments
        assert queue.total == sum(segment.count for segment in segments) >= queue.valid
        assert queue.bytes == sum(segment.bytes for segment in segments)
        assert sum(segment.live for segment in segments) == queue.valid
        assert all(left.end <= right.first for left, right in pairwise(segments))
        cached = [segment for segment in segments if segment.stored and segment.batches is not None]
        assert self.buffer.cache.bytes <= self.memory or cached or not segments

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.room.remove()


TestQueueAgreesWithAList = QueueMachine.TestCase
TestQueueAgreesWithAList.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class QueueMachineInMemory(QueueMachine):
    in_memory = True


TestQueueInMemoryAgreesWithAList = QueueMachineInMemory.TestCase
TestQueueInMemoryAgreesWithAList.settings = TestQueueAgreesWithAList.settings


def test_a_cut_batch_holds_the_messages_asked_for() -> None:
    from shardmq.shards.segments.slicer import BatchSlicer

    batch = RecordBatch("ex", "key", 1, 5, 9, 100, 20, pack_many([b"x" * i for i in range(20)]))
    slicer = BatchSlicer()
    for start in range(20):
        for stop in range(start + 1, 21):
            piece = slicer.cut(batch, start, stop)
            assert (piece.serial, piece.count) == (batch.serial + start, stop - start)
            assert unpack(piece.records, piece.count) == unpack(batch.records, batch.count)[start:stop]
