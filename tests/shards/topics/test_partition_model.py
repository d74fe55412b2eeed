"""A partition against a plain list, through the real store, with clean and dirty restarts anywhere."""

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from shardmq.bus.messages.streams import Reading
from shardmq.message.properties import Properties
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import AMQP, PERSISTENT, RecordBatch
from shardmq.protocol.amqp import properties, records
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.segments.chunks import ChunkCache
from shardmq.shards.segments.tag_summary import TAG, may_have
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.shards.topics.cursor import Cursor, cursor_at
from shardmq.shards.topics.partition import Partition
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import StoreRoom

SMALL_STORE_BYTES = 3000
"""A memory budget so small that bodies are dropped and read back all the time."""

START_MS = 1_700_000_000_000
AGE_MS = 60_000
TAGS = (None, "a", "b")


class Expected(NamedTuple):
    """A message: when it came, what it is."""

    time_ms: int
    body: bytes
    tag: str | None


class Reader:
    """A cursor, and what the model knows of it."""

    def __init__(self, cursor: Cursor, offset: int, wanted: tuple[str | None, ...]) -> None:
        self.cursor = cursor
        self.offset = offset
        self.wanted = wanted


class PartitionMachine(RuleBasedStateMachine):
    """Rules do the same to a Partition and to a list of all messages it ever had."""

    in_memory = False
    readers = Bundle("readers")

    def __init__(self) -> None:
        super().__init__()
        self.room = StoreRoom(self.in_memory)
        self.log: list[Expected] = []
        self.committed = 0
        self.now = 100.0
        self.clock = SteadyClock(START_MS)
        self.life = 0

    @initialize(
        memory=st.sampled_from([SMALL_STORE_BYTES, 1 << 20]),
        bytes_max=st.sampled_from([None, 2000]),
        chunks_least=st.sampled_from([0, 200, 4096]),
    )
    def start(self, memory: int, bytes_max: int | None, chunks_least: int) -> None:
        self.memory = memory
        self.chunks_least = chunks_least
        arguments = {"x-queue-type": "stream", "x-max-age": "1m", "x-stream-filter-size-bytes": 16}
        self.declared = Declared("/", "s", 7, 0, arguments=arguments)
        if bytes_max is not None:
            arguments["x-max-length-bytes"] = bytes_max
        self.bytes_max = bytes_max
        self.open()
        self.buffer.declare(self.declared)
        self.buffer.demand()
        self.buffer.commit()
        self.buffer.commit_behind()

    def open(self) -> None:
        self.store = self.room.open()
        contents = self.store.load()
        self.buffer = WriteBuffer(self.store, self.memory)
        self.buffer.now = self.now
        self.compactor = Compactor(self.buffer)
        stored = stored_queues(contents).get(7, RecoveredQueue())
        self.buffer.chunks = ChunkCache(self.memory, bytes_least=self.chunks_least)
        self.partition = Partition(self.declared, self.buffer, self.clock, stored)

    def commit(self) -> None:
        self.pass_time(20)
        self.partition.seal()
        self.buffer.commit()
        self.committed = len(self.log)

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds / 1000
        self.buffer.now = self.now
        self.clock._offset_ns += milliseconds * 10**6

    @rule(
        tags=st.lists(st.sampled_from(TAGS), min_size=1, max_size=30),
        is_amqp=st.booleans(),
        persistent=st.booleans(),
        late_ms=st.integers(-5000, 5000),
        is_last=st.booleans(),
    )
    def append(self, tags: list[str | None], is_amqp: bool, persistent: bool, late_ms: int, is_last: bool) -> None:
        first = len(self.log)
        bodies = [b"%d" % (first + place) * (1 + (first + place) % 7) for place in range(len(tags))]
        owns = [Properties(headers={TAG: tag}) if tag else None for tag in tags]
        if is_amqp:
            packed = records.pack([properties.encode(own or Properties()) for own in owns], bodies)
        else:
            packed = b"".join([pack_many([body], own) for body, own in zip(bodies, owns, strict=True)])
        now_ms = self.clock.now_ms()
        flags = (PERSISTENT if persistent else 0) | (AMQP if is_amqp else 0)
        batch = RecordBatch("ex", "key", flags, now_ms - late_ms, 9, first, len(tags), packed)
        assert self.partition.append(batch) == len(tags)
        before_ms = self.log[-1].time_ms if self.log else 0
        (stamped, *_) = [kept for _, kept in self.partition.read([(first, first + 1)], 1 << 20)]
        assert before_ms <= stamped.timestamp_ms <= max(self.clock.now_ms(), before_ms)
        assert batch.timestamp_ms == now_ms - late_ms, "a batch that other queues have, too, was changed"
        self.log += [Expected(stamped.timestamp_ms, body, tag) for body, tag in zip(bodies, tags, strict=True)]
        if is_last:
            self.commit()

    @rule(seconds=st.integers(1, 45))
    def wait(self, seconds: int) -> None:
        self.pass_time(seconds * 1000)
        self.commit()

    @rule()
    def merge(self) -> None:
        self.commit()
        self.pass_time(2000)
        for _ in range(2):
            self.partition.young = 32
            self.buffer.compactable[self.partition] = None
            self.compactor.work()
            self.buffer.commit()

    @rule(is_clean=st.booleans())
    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.commit()
        else:
            del self.log[self.committed :]
        first = self.partition.first
        self.store.close()
        self.life += 1
        self.open()
        assert self.partition.first <= first

    @rule(
        target=readers,
        begin=st.sampled_from(["first", "last", "next", "offset", "time"]),
        share=st.floats(-0.2, 1.2),
        wanted=st.sampled_from([TAGS, ("a",), ("a", "b"), ("b", None)]),
    )
    def read(self, begin: str, share: float, wanted: tuple[str | None, ...]) -> Reader:
        partition, log = self.partition, self.log
        first, following = partition.first, partition.next
        number, offset = 0, following
        if begin == "first":
            offset = first
        elif begin == "offset":
            number = max(0, round(share * len(log)))
            offset = min(max(number, first), following)
        elif begin == "time" and log:
            number = log[0].time_ms + round(share * (log[-1].time_ms - log[0].time_ms))
            later = (place for place in range(first, following) if log[place].time_ms >= number)
            offset = next(later, following)
        tags = None if wanted is TAGS else [tag for tag in wanted if tag is not None]
        cursor = cursor_at(partition, Reading(begin, number, tags, None in wanted))
        if begin == "last":
            offset = partition.last_batch()
            assert first <= offset <= following
        return Reader(cursor, offset, wanted)

    @rule(
        reader=readers, is_shared=st.booleans(), limit=st.integers(1, 40), room=st.sampled_from([0, 20, 200, 1 << 20])
    )
    def go_on(self, reader: Reader, is_shared: bool, limit: int, room: int) -> None:
        self.partition.is_shared = is_shared
        if reader.cursor._partition is not self.partition:
            return  # of an earlier life
        cursor, log = reader.cursor, self.log
        for _ in range(1 + len(log)):
            if cursor.ready or not cursor.is_behind:
                break
        expected = self.wanted(reader)
        assert bool(cursor.ready) is (next(expected, None) is not None)
        if not cursor.ready:
            return
        expected = self.wanted(reader)
        taken = 0
        for first, redelivered, _, batch in cursor.take(min(limit, cursor.ready), room, alone=True):
            assert not redelivered
            if batch.flags & AMQP:
                bodies = list(records.unpack(batch.records, batch.count)[1])
            else:
                bodies = [record.body for record in unpack(batch.records, batch.count)]
            for place, body in enumerate(bodies):
                offset = next(expected)
                assert (offset, log[offset].body) == (first + place, body)
                reader.offset = offset + 1
                taken += 1
        assert 0 < taken <= limit

    def wanted(self, reader: Reader) -> Iterator[int]:
        """Offsets that a reader is to get, from the oldest there is on."""
        start = max(reader.offset, self.partition.first)
        return (place for place in range(start, len(self.log)) if self.log[place].tag in reader.wanted)

    @rule(share=st.floats(0, 1), count=st.integers(1, 50))
    def look(self, share: float, count: int) -> None:
        partition = self.partition
        behind = round(share * partition.ready)
        bodies: list[bytes] = []
        for first, _, _, batch in partition.peek(behind, count):
            assert first == partition.first + behind + len(bodies)
            if batch.flags & AMQP:
                bodies += records.unpack(batch.records, batch.count)[1]
            else:
                bodies += [record.body for record in unpack(batch.records, batch.count)]
        assert bodies == [each.body for each in self.log[partition.first + behind :][:count]]

    @invariant()
    def offsets_are_those_of_the_list(self) -> None:
        if not hasattr(self, "partition"):
            return
        partition = self.partition
        assert partition.next == len(self.log)
        assert partition.ready == partition.next - partition.first
        assert partition.total == partition.ready
        assert partition.bytes == sum(segment.bytes for segment in partition.index.segments)

    @invariant()
    def summaries_lack_no_tag(self) -> None:
        if not hasattr(self, "partition"):
            return
        for segment in self.partition._segments:
            if segment.tags is not None:
                tags = {each.tag for each in self.log[segment.first : segment.end]}
                assert all(may_have(segment.tags, [tag.encode()]) for tag in tags if tag is not None)

    @invariant()
    def what_is_kept_is_young_and_small(self) -> None:
        if not hasattr(self, "partition") or self.committed < len(self.log):
            return
        segments = self.partition.index.segments
        now_ms = self.clock.now_ms()
        self.partition.expire(now_ms)
        for segment in segments[:-1]:
            assert self.log[segment.end - 1].time_ms + AGE_MS >= now_ms
        if self.bytes_max is not None and len(segments) > 1:
            assert self.partition.bytes <= self.bytes_max

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        self.room.remove()


class InMemory(PartitionMachine):
    """The same on a store in memory."""

    in_memory = True


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
