"""A model of configured queues: a plain list of what should be in one, opened beside a real one."""

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition

from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.state.hosted_queue import make_queue
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import StoreRoom

Rule = TypeVar("Rule", bound=Callable[..., Any])
HELD, READY, RETURNED, DYING, OUT = "held", "ready", "parked", "dying", "out"

terms = st.fixed_dictionaries(
    {},
    optional={
        "x-max-priority": st.sampled_from([1, 3, 255]),
        "x-message-ttl": st.sampled_from([0, 40, 500]),
        "x-max-length": st.sampled_from([0, 6, 30]),
        "x-max-length-bytes": st.sampled_from([0, 60, 300]),
        "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "x-delivery-limit": st.sampled_from([0, 1, 2]),
        "x-dead-letter-exchange": st.just("dlx"),
        "x-consumer-timeout-action": st.sampled_from(["requeue", "dead-letter"]),
    },
)


def there_are(*states: str) -> Callable[[Rule], Rule]:
    """For rules that need messages in one of these states: without them, most steps would do nothing."""
    return precondition(lambda machine: any(message.state in states for message in machine.messages))


class HandClock(SteadyClock):
    """Goes when it is told to."""

    __slots__ = ("time_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Message:
    """What the model knows of one message."""

    def __init__(self, place: tuple[int, int], body: bytes, batch: RecordBatch) -> None:
        self.place = place
        self.body = body
        self.persistent = batch.flags & PERSISTENT != 0
        self.timestamp_ms = batch.timestamp_ms
        self.ttl_ms = batch.ttl_ms
        self.state = READY
        self.is_new = True
        self.was_delivered = self.was_withdrawn = self.was_refused = False
        self.count = 0
        self.reason = ""
        self.number = -1


class ConfiguredQueueModel(RuleBasedStateMachine):
    """A queue, and a list of what should be in it."""

    in_memory = False

    def __init__(self) -> None:
        super().__init__()
        self.room = StoreRoom(self.in_memory)
        self.clock = HandClock()
        self.now = 100.0
        self.serial = 0
        self.dirty = False
        self.messages: list[Message] = []
        self.deaths: list[Message] = []
        self.settled: set[bytes] = set()

    @initialize(arguments=terms, memory=st.sampled_from([2000, 1 << 20]))
    def start(self, arguments: dict[str, Any], memory: int) -> None:
        self.begin(arguments, memory)

    def begin(self, arguments: dict[str, Any], memory: int) -> None:
        self.memory = memory
        self.take_terms(arguments)
        self.declared = Declared("/", "q", 7, 0, True, arguments)
        self.open([])
        self.buffer.declare(self.declared)
        self.buffer.demand()
        self.buffer.commit()

    def take_terms(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.ttl_ms = arguments.get("x-message-ttl")
        self.top = arguments.get("x-max-priority", 0)
        self.length_max = arguments.get("x-max-length")
        self.bytes_max = arguments.get("x-max-length-bytes")
        self.overflow = arguments.get("x-overflow", "drop-head")
        self.limit = arguments.get("x-delivery-limit")
        self.has_exchange = "x-dead-letter-exchange" in arguments

    def open(self, delayed: list[tuple[int, int]]) -> None:
        self.store = self.room.open()
        stored = stored_queues(self.store.load()).get(7, RecoveredQueue())
        stored.delayed = delayed
        self.buffer = WriteBuffer(self.store, self.memory)
        self.buffer.now = self.now
        self.queue = make_queue(self.declared, self.buffer, self.clock, stored)

    def those(self, *states: str) -> list[Message]:
        return sorted((m for m in self.messages if m.state in states), key=lambda m: m.place)

    def remove(self, message: Message) -> None:
        self.messages.remove(message)
        if message in self.deaths:
            self.deaths.remove(message)
        self.settled.add(message.body)

    def die(self, messages: list[Message], reason: str) -> None:
        for message in messages:
            message.was_withdrawn = True
            if self.has_exchange:
                message.state, message.reason = DYING, reason
                self.deaths.append(message)
            else:
                self.remove(message)

    def expire(self) -> None:
        for subqueue in sorted({message.place[0] for message in self.those(READY)}):
            for message in self.those(READY):
                if message.place[0] == subqueue:
                    ttls = [ttl for ttl in (message.ttl_ms, self.ttl_ms) if ttl is not None]
                    if message.is_new or not ttls or message.timestamp_ms + min(ttls) > self.clock.time_ms:
                        break
                    self.die([message], "expired")

    def trim(self) -> None:
        if self.overflow != "drop-head":
            return
        while ready := sorted(self.those(READY), key=lambda m: (-m.place[0], m.place[1])):
            too_long = self.length_max is not None and len(ready) > self.length_max
            too_large = self.bytes_max is not None and sum(len(m.body) for m in ready) > self.bytes_max
            if not too_long and not too_large:
                return
            self.die(ready[:1], "maxlen")

    def taken(self, bodies: list[bytes]) -> int:
        """How many of these the queue should take."""
        if self.overflow == "drop-head":
            return len(bodies)
        ready = self.those(READY)
        size = sum(len(m.body) for m in ready)
        for place, body in enumerate(bodies):
            size += len(body)
            if self.length_max is not None and len(ready) + place + 1 > self.length_max:
                return place
            if self.bytes_max is not None and size > self.bytes_max:
                return place
        return len(bodies)

    def count(self, messages: list[Message]) -> list[Message]:
        """They were delivered in vain; returns those that stay."""
        if self.limit is None:
            return messages
        for message in messages:
            message.count += 1
        self.die([message for message in messages if message.count > self.limit], "delivery_limit")
        return [message for message in messages if message.count <= self.limit]

    def commit(self) -> None:
        self.now += 0.02
        self.queue.seal()
        self.trim()
        for message in self.messages:
            message.is_new = False
        self.buffer.commit()
        self.buffer.now = self.now

    def shown_count(self, message: Message) -> int:
        """How often a look says that a message was delivered in vain."""
        return message.count if isinstance(self.queue, ConfiguredQueue) else 0

    def pick(self, data: st.DataObject, *states: str) -> tuple[list[Message], list[tuple[int, int]]]:
        """Some messages in one of these states, with their numbers."""
        some = sorted(self.those(*states), key=lambda m: m.number)
        if some:
            start = data.draw(st.integers(0, len(some) - 1))
            step = data.draw(st.integers(1, 3))
            some = some[start : start + data.draw(st.integers(1, 12)) : step]
        return some, list(RangeSet((m.number, m.number + 1) for m in some))
