"""Queues with arguments of every combination against a plain list, through the real store, with restarts anywhere."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.queues.delivery import Delivery
from shardmq.topology.entities import Queue as Declared
from tests.shards.queues.configured_queue_model import (
    DYING,
    HELD,
    OUT,
    READY,
    RETURNED,
    ConfiguredQueueModel,
    Message,
    there_are,
)


class ConfiguredQueueMachine(ConfiguredQueueModel):
    """Rules do the same to a queue and to a list of what should be in it."""

    @rule(
        counts=st.lists(st.integers(1, 12), min_size=1, max_size=3),
        priority=st.sampled_from([0, 0, 1, 2, 9]),
        ttl_ms=st.sampled_from([None, None, 0, 30, 80]),
        persistent=st.booleans(),
        late=st.booleans(),
    )
    def publish(self, counts: list[int], priority: int, ttl_ms: int | None, persistent: bool, late: bool) -> None:
        subqueue = max(0, self.top - priority)
        for count in counts:
            bodies = [b"%d." % (self.serial + i) * (1 + (self.serial + i) % 4) for i in range(count)]
            batch = RecordBatch(
                "ex",
                "key",
                int(persistent),
                self.clock.time_ms,
                9,
                self.serial,
                count,
                pack_many(bodies),
                priority,
                ttl_ms,
            )
            taken = self.taken(bodies)
            assert self.queue.append(batch) == taken
            for place, body in enumerate(bodies):
                message = Message((subqueue, self.serial + place), body, batch)
                if place < taken:
                    self.messages.append(message)
                elif self.has_exchange and self.overflow == "reject-publish-dlx":
                    message.place = (256, self.serial + place)
                    message.was_refused = True
                    self.messages.append(message)
                    self.die([message], "maxlen")
            self.serial += count
        if not late:
            self.commit()

    @there_are(READY)
    @rule(limit=st.integers(1, 30), room=st.sampled_from([0, 40, 1 << 20, 1 << 20]))
    def take(self, limit: int, room: int) -> None:
        deliveries = self.queue.take(limit, room, True)
        self.expire()
        got = 0
        size = sum(len(delivery.batch.records) for delivery in deliveries)
        for delivery in deliveries:
            for number, record in enumerate(unpack(delivery.batch.records, delivery.batch.count), delivery.first):
                message = self.those(READY)[0]
                assert message.body == record.body
                assert delivery.delivery_count == (message.count if self.limit is not None else 0)
                assert message.number in (-1, number)
                assert delivery.redelivered or not message.was_delivered
                assert not delivery.redelivered or self.dirty or message.was_delivered or message.was_withdrawn
                message.state, message.number, message.was_delivered = HELD, number, True
                got += 1
                if got < limit:
                    self.expire()  # what is at the head now
        waiting = self.those(READY)
        assert got <= limit
        assert got > 0 or not waiting
        assert size <= room or got == 1
        if got < limit and waiting:
            assert size + len(pack_many([waiting[0].body])) > room
        self.commit()

    def compare(self, deliveries: list[Delivery], expected: list[Message]) -> None:
        found = [
            (record.body, delivery.delivery_count)
            for delivery in deliveries
            for record in unpack(delivery.batch.records, delivery.batch.count)
        ]
        assert found == [(m.body, self.shown_count(m)) for m in expected[: len(found)]]

    @there_are(READY)
    @rule(offset=st.integers(0, 10), count=st.integers(1, 20))
    def peek(self, offset: int, count: int) -> None:
        deliveries = self.queue.peek(offset, count)
        expected = self.those(READY)[offset : offset + count]
        assert sum(delivery.batch.count for delivery in deliveries) == len(expected)
        self.compare(deliveries, expected)
        for delivery in deliveries:
            for message in expected[: delivery.batch.count]:
                assert delivery.redelivered or not message.was_delivered
                assert not delivery.redelivered or self.dirty or message.was_delivered or message.was_withdrawn
            del expected[: delivery.batch.count]

    @there_are(HELD)
    @rule(data=st.data(), late=st.booleans())
    def settle(self, data: st.DataObject, late: bool) -> None:
        messages, ranges = self.pick(data, HELD)
        self.queue.settle(ranges)
        for message in messages:
            self.remove(message)
        if not late:
            self.commit()

    @there_are(HELD)
    @rule(data=st.data(), by_timeout=st.booleans())
    def requeue(self, data: st.DataObject, by_timeout: bool) -> None:
        messages, ranges = self.pick(data, HELD)
        (self.queue.time_out if by_timeout else self.queue.requeue)(ranges)
        if by_timeout and self.arguments.get("x-consumer-timeout-action") == "dead-letter":
            self.die(messages, "ack_timeout")
        else:
            for message in self.count(messages):
                message.state = READY
        self.commit()

    @there_are(READY)
    @rule(limit=st.integers(1, 8), times=st.integers(1, 3))
    def deliver_in_vain(self, limit: int, times: int) -> None:
        for _ in range(times):
            self.take(limit, 1 << 20)
            held = sorted(self.those(HELD), key=lambda m: m.number)
            self.queue.requeue(list(RangeSet((m.number, m.number + 1) for m in held)))
            for message in self.count(held):
                message.state = READY
            self.commit()

    @there_are(HELD)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        messages, ranges = self.pick(data, HELD)
        self.queue.reject(ranges)
        self.die(messages, "rejected")
        self.commit()

    @there_are(HELD)
    @rule(data=st.data())
    def delay_return(self, data: st.DataObject) -> None:
        messages, ranges = self.pick(data, HELD)
        delayed = self.queue.delay_return(ranges)
        kept = self.count(messages)
        assert sum(end - start for start, end in delayed) == len(kept)
        for message in kept:
            assert any(start <= message.number < end for start, end in delayed)
            message.state = RETURNED
        self.commit()

    @there_are(RETURNED)
    @rule(data=st.data())
    def end_delay(self, data: st.DataObject) -> None:
        messages, ranges = self.pick(data, RETURNED, HELD)
        self.queue.end_delay(ranges)
        for message in messages:
            if message.state == RETURNED:
                message.state = READY
        self.commit()

    @there_are(READY)
    @rule()
    def purge(self) -> None:
        ready = self.those(READY)
        count, steps = self.queue.purge()
        assert count == len(ready)
        assert self.queue.ready == 0
        assert sum(steps) >= 0
        for message in ready:
            self.remove(message)
        self.buffer.demand()
        self.commit()

    @rule(elapsed=st.integers(0, 60))
    def wait(self, elapsed: int) -> None:
        self.clock.time_ms += elapsed
        self.queue.expire(self.clock.time_ms)
        self.expire()
        due = self.queue.next_expiry_ms
        assert due is None or due > self.clock.time_ms or any(m.is_new for m in self.those(READY))
        self.commit()

    @rule()
    def wait_until_the_head_expires(self) -> None:
        self.commit()
        self.queue.expire(self.clock.time_ms)
        self.expire()
        self.commit()
        due = self.queue.next_expiry_ms
        if due is not None:
            before = len(self.those(READY))
            self.clock.time_ms = due - 1
            self.queue.expire(due - 1)
            assert self.queue.ready == before
            self.clock.time_ms = due
            self.queue.expire(due)
            self.expire()
            assert self.queue.ready < before
            self.commit()

    @there_are(DYING)
    @rule(limit=st.sampled_from([1, 60, 1 << 20]))
    def take_deaths(self, limit: int) -> None:
        queue = self.queue
        waiting = [message for message in self.deaths if message.state == DYING]
        if queue.outbox is None:
            assert not waiting
            return
        assert queue.outbox.waiting == bool(waiting)
        got = queue.outbox.take(limit)
        assert bool(got) == bool(waiting)
        for death in got:
            for place, record in enumerate(unpack(death.batch.records, death.batch.count)):
                message = waiting.pop(0)
                assert (record.body, death.reason) == (message.body, message.reason)
                assert death.delivery_count == self.shown_count(message)
                assert message.number in (-1, death.first + place)
                message.number, message.state = death.first + place, OUT
        self.commit()

    @there_are(OUT)
    @rule(data=st.data())
    def bury(self, data: st.DataObject) -> None:
        messages, ranges = self.pick(data, OUT)
        if self.queue.outbox is not None:
            self.queue.outbox.buried(ranges)
            for message in messages:
                self.remove(message)
        self.commit()

    @there_are(OUT)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        messages, ranges = self.pick(data, OUT)
        if self.queue.outbox is not None:
            self.queue.outbox.retry(ranges)
            for message in messages:
                message.state = DYING
            self.deaths = messages + [message for message in self.deaths if message not in messages]
        self.commit()

    @rule()
    def collect(self) -> None:
        self.commit()
        self.now += 2
        self.buffer.now = self.now
        compactor = Compactor(self.buffer)
        for subqueue in self.subqueues():
            segments = subqueue.index.segments
            if segments and len({(segment.durable, segment.stored) for segment in segments}) == 1:
                compactor._rewrite(subqueue, 0, len(segments))
        self.commit()

    def subqueues(self) -> list[Any]:
        return list(getattr(self.queue, "_levels", [self.queue]))

    @rule()
    def restart_cleanly(self) -> None:
        held, ranges = self.those(HELD), list(RangeSet((m.number, m.number + 1) for m in self.those(HELD)))
        held.sort(key=lambda m: m.number)
        self.queue.requeue(ranges)
        for message in self.count(held):
            message.state = READY
        self.commit()
        self.queue.mark_exactly()
        self.buffer.demand()
        self.buffer.commit()
        self.restarted()

    @rule()
    def restart_dirty(self) -> None:
        self.now += 1
        self.buffer.now = self.now
        self.commit()
        self.now += 1
        self.buffer.now = self.now
        self.commit()
        self.restarted()
        self.dirty = True

    def restarted(self) -> None:
        self.store.close()
        self.open(list(RangeSet((m.number, m.number + 1) for m in self.those(RETURNED))))
        self.messages = [message for message in self.messages if message.persistent]
        self.deaths.clear()
        for message in self.messages:
            if message.state != RETURNED:
                message.state = READY
        ready = self.those(READY)
        self.die([message for message in ready if message.was_refused], "maxlen")
        if self.limit is not None:
            self.die([message for message in self.those(READY) if message.count > self.limit], "delivery_limit")
        self.trim()

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue, table = self.queue, self.queue.table(0)
        assert (queue.valid, queue.ready) == (len(self.messages), len(self.those(READY)))
        assert queue.unacked == len(self.those(HELD))
        assert (table["dying"], table["delayed"]) == (len(self.those(DYING, OUT)), len(self.those(RETURNED)))
        length_limit = getattr(queue, "_length_limit", None)
        if length_limit is not None and self.bytes_max is not None:
            assert length_limit.bytes == sum(len(message.body) for message in self.those(READY))
        for subqueue in self.subqueues():
            segments = subqueue.index.segments
            assert sum(segment.live for segment in segments) == subqueue.valid
            assert all(segment.counts is None or segment.live for segment in segments)

    def teardown(self) -> None:
        """End as by a crash, with what is not written yet lost: whatever was not settled is there, once."""
        if hasattr(self, "store"):
            self.commit()
            persistent = {message.body for message in self.messages if message.persistent}
            self.store.close()
            self.has_exchange = True
            self.declared = Declared("/", "q", 7, 0, True, {"x-dead-letter-exchange": "dlx"} | self.without_ends())
            self.open([])
            queue = self.queue
            assert queue.outbox is not None
            batches = [delivery.batch for delivery in queue.peek(0, 1 << 30)]
            while queue.outbox.waiting:
                batches += [death.batch for death in queue.outbox.take(1 << 20)]
            bodies = [record.body for batch in batches for record in unpack(batch.records, batch.count)]
            assert len(bodies) == len(set(bodies))
            assert persistent <= set(bodies) <= persistent | self.settled
            self.store.close()
        self.room.remove()

    def without_ends(self) -> dict[str, Any]:
        """The arguments, but for those that would drop something."""
        kept = ("x-max-priority", "x-delivery-limit")
        return {name: value for name, value in self.arguments.items() if name in kept}


TestConfiguredQueueAgreesWithAList = ConfiguredQueueMachine.TestCase
TestConfiguredQueueAgreesWithAList.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


class ConfiguredQueueMachineInMemory(ConfiguredQueueMachine):
    in_memory = True


TestConfiguredQueueInMemoryAgreesWithAList = ConfiguredQueueMachineInMemory.TestCase
TestConfiguredQueueInMemoryAgreesWithAList.settings = TestConfiguredQueueAgreesWithAList.settings
