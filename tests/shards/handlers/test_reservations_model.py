"""Reserving, reading, acknowledging and releasing against a list, through a real worker, with crashes in between."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardmq.bus.messages.reads import EndReservation, Slices
from shardmq.bus.messages.shard import Ack, Nack, Purge
from shardmq.message.record import pack_many
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.handlers.reservations import ACKNOWLEDGED_MS
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.topology.entities import Queue
from tests.shards.clocked import LONG_MS, Clocked
from tests.shards.inside import MEMORY

Rule = TypeVar("Rule", bound=Callable[..., Any])
NAMES = ("night", "day", "noon")
READY, UNACKED, RETURNED = "ready", "unacked", "parked"
TOP = 3
PARKED_MS = 1000 * LONG_MS

arguments = st.sampled_from(
    [
        {},
        {"x-max-priority": TOP},
        {"x-max-length-bytes": 1 << 20},
        {"x-max-priority": TOP, "x-delivery-limit": 1000, "x-max-length": 100_000},
    ]
)


class Message:
    """What the model knows of one message: it is ready, unacked, delayed, or under the name of its reservation."""

    def __init__(self, place: tuple[int, int], body: bytes, persistent: bool) -> None:
        self.place = place
        self.body = body
        self.persistent = persistent
        self.state = READY
        self.number = -1
        self.was_out = False


def there_are(*states: str) -> Callable[[Rule], Rule]:
    """For rules that need messages in one of these states: without them, most steps would do nothing."""
    return precondition(lambda machine: any(message.state in states for message in machine.messages))


class ReservationMachine(RuleBasedStateMachine):
    """Rules do the same to a shard and to a list of what should be in its queue."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.messages: list[Message] = []
        self.kept: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.serial = self.now_ms = 0
        self.is_exact = True

    @initialize(arguments=arguments, memory=st.sampled_from([2000, 1 << 20]))
    def start(self, arguments: dict[str, Any], memory: int) -> None:
        self.has_priorities = "x-max-priority" in arguments
        self.shard = Clocked(self.folder, memory)
        self.shard.assign(Queue("/", "q", 1, 0, True, arguments))

    def those(self, *states: str) -> list[Message]:
        return sorted([message for message in self.messages if message.state in states], key=lambda m: m.place)

    def end(self, name: str) -> list[Message]:
        """A reservation's messages are ready again."""
        back = self.those(name)
        for message in back:
            message.state, message.was_out = READY, True
        self.kept.pop(name, None)
        return back

    def forget_old(self) -> None:
        for name, until_ms in list(self.kept.items()):
            if until_ms <= self.now_ms:
                self.end(name)
        for name, until_ms in list(self.acknowledged.items()):
            if until_ms <= self.now_ms:
                del self.acknowledged[name]

    @rule(
        counts=st.lists(st.integers(1, 15), min_size=1, max_size=4),
        persistent=st.booleans(),
        priority=st.integers(0, TOP),
    )
    def publish(self, counts: list[int], persistent: bool, priority: int) -> None:
        batches = []
        subqueue = TOP - priority if self.has_priorities else 0
        for count in counts:
            bodies = [b"%d" % number * (1 + number % 7) for number in range(self.serial, self.serial + count)]
            flags = PERSISTENT if persistent else 0
            batch = RecordBatch("ex", "key", flags, 5, 9, self.serial, count, pack_many(bodies))
            batch.priority = priority
            batches.append(batch)
            for body in bodies:
                self.messages.append(Message((subqueue, self.serial), body, persistent))
                self.serial += 1
        self.shard.take_in(*batches)

    @there_are(READY)
    @rule(count=st.integers(1, 12))
    def get(self, count: int) -> None:
        for message in self.those(READY)[:count]:
            got = self.shard.get()
            assert got is not None
            assert message.body in got.batch.records
            assert not (message.was_out and not got.redelivered)
            assert not self.is_exact or message.was_out == got.redelivered
            message.state, message.was_out, message.number = UNACKED, True, got.first

    @there_are(UNACKED)
    @rule(data=st.data(), what=st.sampled_from(["settle", "return", "park"]))
    def settle(self, data: st.DataObject, what: str) -> None:
        some = data.draw(st.lists(st.sampled_from(self.those(UNACKED)), min_size=1, unique=True))
        ranges = [(message.number, message.number + 1) for message in some]
        if what == "settle":
            self.shard.tell(Ack(9, ranges))
            self.messages = [message for message in self.messages if message not in some]
        else:
            self.shard.tell(Nack(9, ranges, True, PARKED_MS if what == "park" else 0))
            for message in some:
                message.state = RETURNED if what == "park" else READY

    @rule(
        name=st.sampled_from(NAMES), count=st.sampled_from([0, 1, 5, 20]), lease_ms=st.sampled_from([10_000, LONG_MS])
    )
    def reserve(self, name: str, count: int, lease_ms: int) -> None:
        answer = self.shard.reserve(name, count, lease_ms)
        if name in self.acknowledged:
            assert answer == (0, True)
            return
        if name not in self.kept:
            ready = self.those(READY)
            for message in ready[:count] if count else ready:
                message.state = name
            found = self.shard.read(name)
            self.spans[name] = (found[0][0], found[-1][0] + 1) if found else (0, 0)
        self.kept[name] = self.now_ms + lease_ms
        assert answer == (len(self.those(name)), False)

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.kept)))
        there = self.shard.read(name)
        step = data.draw(st.integers(1, 3))
        if there and data.draw(st.booleans()):
            some = sorted({number for number, _, _, _ in there[::step]})
            ranges = [(number, number + 1) for number in some]
            if step == 1:
                ranges = [self.spans[name]]
        else:
            ranges, some = [], [number for number, _, _, _ in there]
        assert self.shard.acknowledge(name, ranges) == len(some)
        done = {body for number, body, _, _ in there if number in some}
        self.messages = [message for message in self.messages if message.state != name or message.body not in done]
        if not self.those(name):
            until_ms = self.kept.pop(name)
            self.acknowledged[name] = max(until_ms, self.now_ms + ACKNOWLEDGED_MS)

    @rule(name=st.sampled_from(NAMES))
    def release(self, name: str) -> None:
        assert self.shard.release(name) == (len(self.end(name)) if name in self.kept else 0)

    @rule(milliseconds=st.sampled_from([11_000, LONG_MS + 20_000, ACKNOWLEDGED_MS + 20_000]))
    def time_passes(self, milliseconds: int) -> None:
        if self.now_ms + milliseconds > PARKED_MS // 2:  # what was parked stays so
            milliseconds = 11_000
        self.shard.put_forward(milliseconds)
        self.now_ms += milliseconds
        self.forget_old()

    @rule(name=st.sampled_from(NAMES))
    def acknowledge_again(self, name: str) -> None:
        if name in self.acknowledged:
            assert self.shard.acknowledge(name) == 0
        elif name not in self.kept:
            assert self.shard.refused(EndReservation, 1, name, True, []).code == 404

    @rule()
    def purge(self) -> None:
        assert self.shard.do(Purge, 1) == len(self.those(READY))
        self.messages = [message for message in self.messages if message.state != READY]

    @rule()
    def collect(self) -> None:
        """Segments are merged and copied, as they are when time has passed."""
        buffer = self.shard.loop._buffer
        for subqueue in self.shard.loop._state.queues[1].queue.subqueues:
            for segment in subqueue.index.segments:
                segment.born -= 10
            subqueue.young = max(subqueue.young, 40)
            buffer.compactable[subqueue] = None
        self.shard.loop._compactor.work()
        self.shard.tell()

    @rule(dirty=st.booleans())
    def restart(self, dirty: bool) -> None:
        self.end_and_start(dirty)

    def end_and_start(self, dirty: bool) -> None:
        if dirty:
            self.shard.restart()
            self.is_exact = False
        else:
            self.shard.stop()
        self.messages = [message for message in self.messages if message.persistent]
        for message in self.messages:
            if message.state == UNACKED:
                message.state = READY

    @invariant()
    def reading_finds_what_should_be_there(self) -> None:
        if not hasattr(self, "shard"):
            return
        for state in (READY, *self.kept):
            name = "" if state == READY else state
            found = self.shard.read(name, count=1 + self.serial % 9)
            there = self.those(state)
            assert [body for _, body, _, _ in found] == [message.body for message in there]
            for message, (_, _, redelivered, _) in zip(there, found, strict=True):
                assert redelivered or not message.was_out
                assert not self.is_exact or redelivered == message.was_out
            slices = self.shard.do(Slices, 1, 4, name)
            subqueues = len({number >> SUBQUEUE_BITS for number, _, _, _ in found})
            assert 0 <= len(slices) - min(4, len(found)) < max(1, subqueues)  # none goes from one subqueue to another
            for first, end, messages in slices:
                assert messages == len([number for number, _, _, _ in found if first <= number < end])
            assert sum(messages for _, _, messages in slices) == len(found)

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "shard"):
            return
        table = self.shard.table()
        assert (table["ready"], table["unacked"], table["delayed"]) == (
            len(self.those(READY)),
            len(self.those(UNACKED)),
            len(self.those(RETURNED)),
        )
        assert table["reserved"] == len(self.those(*NAMES))
        assert table["total"] >= table["valid"] == len(self.messages)
        queue = self.shard.loop._state.queues[1].queue
        if (
            isinstance(queue, ConfiguredQueue)
            and queue._length_limit is not None
            and queue._length_limit.bytes_max is not None
        ):
            assert queue._length_limit.bytes == sum(len(message.body) for message in self.those(READY))

    def teardown(self) -> None:
        if hasattr(self, "shard"):
            self.shard.close()
        shutil.rmtree(self.folder)


TestReservationsAgreeWithAList = ReservationMachine.TestCase
TestReservationsAgreeWithAList.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
