"""Several queues that share bodies, against lists: each body is stored once, and for as long as somebody has it."""

from itertools import groupby

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.schema import SHARED, SPILLED_SHARED, number_of
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import StoreRoom

QUEUES = {number: Declared("/", f"q{number}", number, 0, durable=number < 4) for number in range(1, 5)}
"""Three that survive a restart, and one that does not."""

Message = tuple[bytes, bool]
"""A body, and whether it is persistent."""


class SharingMachine(RuleBasedStateMachine):
    """Rules do the same to queues of one store and to lists of what should be in them, oldest first."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.room = StoreRoom(self.in_memory)
        self.ready: dict[int, list[Message]] = {number: [] for number in QUEUES}
        self.unacked: dict[int, dict[int, Message]] = {number: {} for number in QUEUES}
        self.serial = 0
        self.now = 100.0

    @initialize(memory=st.sampled_from([0, 20_000, 1 << 20]))
    def start(self, memory: int) -> None:
        self.memory = memory
        self.open()
        for declared in QUEUES.values():
            if declared.durable:
                self.buffer.declare(declared)
        self.buffer.demand()
        self.buffer.commit()

    def open(self) -> None:
        self.store = self.room.open()
        contents = self.store.load()
        assert not contents.damaged
        self.buffer = WriteBuffer(self.store, self.memory)
        self.buffer.now = self.now
        stored = stored_queues(contents)
        self.compactor = Compactor(self.buffer)
        self.queues = {
            number: PlainQueue(declared, self.buffer, SteadyClock(), stored.get(number, RecoveredQueue()))
            for number, declared in QUEUES.items()
        }

    def commit(self) -> None:
        for queue in self.queues.values():
            queue.seal()
        self.buffer.commit()

    @rule(
        numbers=st.sets(st.sampled_from(sorted(QUEUES)), min_size=1),
        counts=st.lists(st.integers(1, 8), min_size=1, max_size=3),
        size=st.sampled_from([10, 1800, 5000]),
        persistent=st.booleans(),
        late=st.booleans(),
    )
    def publish(self, numbers: set[int], counts: list[int], size: int, persistent: bool, late: bool) -> None:
        for count in counts:
            bodies = [b"%d " % (self.serial + place) * (size // 4) for place in range(count)]
            flags = PERSISTENT if persistent else 0
            batch = RecordBatch("ex", "key", flags, 5, 9, self.serial, count, pack_many(bodies))
            if len(numbers) > 1:
                batch = self.store.bodies.share(batch)
            self.serial += count
            for number in numbers:
                self.queues[number].append(batch)
                self.ready[number] += [(body, persistent) for body in bodies]
        if not late:
            self.commit()

    @rule(number=st.sampled_from(sorted(QUEUES)), limit=st.integers(1, 40))
    def take(self, number: int, limit: int) -> None:
        for first, _, _, batch in self.queues[number].take(limit, 1 << 20, alone=True):
            for place, record in enumerate(unpack(batch.records, batch.count)):
                expected = self.ready[number].pop(0)
                assert record.body == expected[0]
                self.unacked[number][first + place] = expected
        self.commit()

    @rule(
        number=st.sampled_from(sorted(QUEUES)),
        start=st.integers(0, 12),
        count=st.integers(1, 12),
        step=st.integers(1, 3),
        at_once=st.booleans(),
    )
    def ack(self, number: int, start: int, count: int, step: int, at_once: bool) -> None:
        for each in sorted(self.unacked[number])[start : start + count : step]:
            del self.unacked[number][each]
            self.queues[number].settle([(each, each + 1)])
        if at_once:
            self.buffer.demand()
        self.commit()

    @rule(
        number=st.sampled_from(sorted(QUEUES)), start=st.integers(0, 8), count=st.integers(1, 8), at_once=st.booleans()
    )
    def ack_some_and_merge(self, number: int, start: int, count: int, at_once: bool) -> None:
        """Neighbours that are settled in part are merged; machines seldom come to that step by step."""
        self.take(number, 40)
        self.ack(number, start, count, 1, at_once)
        self.merge(number)

    @rule(number=st.sampled_from(sorted(QUEUES)))
    def requeue(self, number: int) -> None:
        back = self.unacked[number]
        self.queues[number].requeue(list(RangeSet([(each, each + 1) for each in sorted(back)])))
        self.ready[number] = [back[each] for each in sorted(back)] + self.ready[number]
        back.clear()
        self.commit()

    @rule(number=st.sampled_from(sorted(QUEUES)))
    def purge(self, number: int) -> None:
        count, steps = self.queues[number].purge()
        assert count == len(self.ready[number])
        assert sum(steps) >= 0
        self.ready[number].clear()
        self.buffer.demand()
        self.commit()

    @rule(number=st.sampled_from(sorted(QUEUES)))
    def merge(self, number: int) -> None:
        """All neighbours that may be merged are."""
        self.commit()
        queue = self.queues[number]
        place = 0
        for _, group in groupby(list(queue.index.segments), key=lambda each: (each.durable, each.stored)):
            place += self.compactor._rewrite(queue, place, place + len(list(group)))
        self.commit()

    @rule()
    def forget_bodies(self) -> None:
        """Nothing stays in memory, whatever the budget is."""
        self.commit()
        self.buffer.cache.bytes_max = 0
        self.commit()
        assert self.buffer.cache.bytes == 0
        self.buffer.cache.bytes_max = self.memory

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.buffer.demand()
        else:
            self.now += 1
            self.buffer.now = self.now
        self.commit()
        self.store.close()
        self.open()
        for number, declared in QUEUES.items():
            back = self.unacked[number]
            messages = [back[each] for each in sorted(back)] + self.ready[number]
            self.ready[number] = [each for each in messages if each[1] and declared.durable]
            back.clear()

    def segments(self) -> list[Segment]:
        """All that have a stored value."""
        there = [segment for queue in self.queues.values() for segment in queue.index.segments]
        return [segment for segment in [*there, *self.buffer._settled] if segment.stored]

    @invariant()
    def what_is_stored_is_what_is_referred_to(self) -> None:
        if not hasattr(self, "queues"):
            return
        for durable, database in ((True, SHARED), (False, SPILLED_SHARED)):
            sets = [each.shared for each in self.segments() if each.durable is durable and each.shared is not None]
            referred = RangeSet([(number, number + 1) for shared in sets for part in shared for number in range(*part)])
            stored = [number_of(key) for key in self.store.engine.keys(database)]
            assert stored == [number for part in referred for number in range(*part)]
            counts = self.store.bodies._counts[durable]
            assert all(counts.pieces(number, number + 1)[0][2] == sum(number in s for s in sets) for number in stored)
            assert sum(end - start for start, end, _ in counts) == len(stored)

    @invariant()
    def queues_have_what_they_should(self) -> None:
        if not hasattr(self, "queues"):
            return
        for number, queue in self.queues.items():
            assert (queue.ready, queue.unacked) == (len(self.ready[number]), len(self.unacked[number]))

    @invariant()
    def memory_is_counted_right(self) -> None:
        if not hasattr(self, "queues"):
            return
        cache = self.buffer.cache
        assert cache.bytes == sum(cache._costs.values()) + sum(len(records) for records, _ in cache._shared.values())
        users = [body for bodies in cache._sharing.values() for body in bodies]
        assert {body: users.count(body) for body in users} == {
            body: count for body, (_, count) in cache._shared.items()
        }

    def teardown(self) -> None:
        if hasattr(self, "store"):
            for number, queue in self.queues.items():
                for _, _, _, batch in queue.take(1 << 30, 1 << 30, alone=True):
                    for record in unpack(batch.records, batch.count):
                        assert record.body == self.ready[number].pop(0)[0]
                assert not self.ready[number]
            self.store.close()
        self.room.remove()


TestQueuesThatShareAgreeWithLists = SharingMachine.TestCase
TestQueuesThatShareAgreeWithLists.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)


class SharingMachineInMemory(SharingMachine):
    in_memory = True


TestQueuesInMemoryThatShareAgreeWithLists = SharingMachineInMemory.TestCase
TestQueuesInMemoryThatShareAgreeWithLists.settings = TestQueuesThatShareAgreeWithLists.settings
