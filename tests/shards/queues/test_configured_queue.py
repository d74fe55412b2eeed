"""What a queue's arguments do to its messages, one by one, over its store."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import SteadyClock
from shardmq.shards.queues.configured_queue import ConfiguredQueue
from shardmq.shards.queues.plain_queue import PlainQueue
from shardmq.shards.queues.queue import Queue
from shardmq.shards.state.hosted_queue import make_queue
from shardmq.shards.storage.recovery import RecoveredQueue, stored_queues
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer
from shardmq.topology.entities import Queue as Declared

DEAD_LETTERS = {"x-dead-letter-exchange": "dlx"}


class Shelf:
    """A queue on its store; `open` again is what follows a crash."""

    def __init__(self, folder: Path, clock: SteadyClock) -> None:
        self.folder = folder
        self.clock = clock
        self.serial = 0
        self.store = Store.open(folder)
        self.buffer = WriteBuffer(self.store, 1 << 20)

    def declare(self, **arguments: Any) -> Queue:
        names = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.declared = Declared("/", "q", 7, 0, True, names)
        queue = self.open()
        self.buffer.declare(self.declared)
        self.buffer.demand()
        self.buffer.commit()
        return queue

    def open(self) -> Queue:
        self.store.close()
        self.store = Store.open(self.folder)
        self.buffer = WriteBuffer(self.store, 1 << 20)
        self.queue = make_queue(
            self.declared, self.buffer, self.clock, stored_queues(self.store.load()).get(7, RecoveredQueue())
        )
        return self.queue

    def publish(self, *bodies: bytes, priority: int = 0, ttl_ms: int | None = None) -> int:
        now = self.clock.now_ms()
        batch = RecordBatch("ex", "key", 1, now, 9, self.serial, len(bodies), pack_many(bodies), priority, ttl_ms)
        self.serial += len(bodies)
        return self.queue.append(batch)

    def end_pass(self) -> None:
        self.queue.seal()
        self.buffer.demand()
        self.buffer.commit()

    def take(self, limit: int = 1000) -> list[bytes]:
        deliveries = self.queue.take(limit, 1 << 30, True)
        return [
            record.body for delivery in deliveries for record in unpack(delivery.batch.records, delivery.batch.count)
        ]

    def outbox(self) -> list[tuple[bytes, str]]:
        assert self.queue.outbox is not None
        return [
            (record.body, death.reason)
            for death in self.queue.outbox.take(1 << 20)
            for record in unpack(death.batch.records, death.batch.count)
        ]


class HandClock(SteadyClock):
    """Goes when it is told to."""

    __slots__ = ("time_ms",)

    def __init__(self) -> None:
        super().__init__()
        self.time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def shelf(tmp_path: Path, clock: HandClock) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "shard-0", clock)
    yield shelf
    shelf.store.close()


def test_arguments_that_messages_do_not_notice_make_a_plain_queue(shelf: Shelf) -> None:
    assert type(shelf.declare(x_expires=5, x_consumer_timeout=5, x_single_active_consumer=True)) is PlainQueue
    assert shelf.queue.arguments.expires_ms == 5
    assert type(shelf.declare(x_message_ttl=5)) is ConfiguredQueue


def test_the_highest_priority_goes_out_first_and_equals_in_order(shelf: Shelf) -> None:
    shelf.declare(x_max_priority=5)
    for body, priority in ((b"a", 0), (b"b", 3), (b"c", 5), (b"d", 3), (b"e", 200)):
        shelf.publish(body, priority=priority)
    shelf.end_pass()
    shelf.open()
    assert shelf.take() == [b"c", b"e", b"b", b"d", b"a"]


def test_a_priority_nobody_used_costs_no_lane(shelf: Shelf) -> None:
    queue = shelf.declare(x_max_priority=255)
    shelf.publish(b"a", priority=9)
    assert isinstance(queue, ConfiguredQueue)
    assert len(list(queue._levels)) == 2


def test_each_lane_knows_after_a_restart_what_it_handed_out(shelf: Shelf) -> None:
    shelf.declare(x_max_priority=5)
    shelf.publish(b"low", b"low too")
    shelf.publish(b"high", priority=5)
    assert shelf.take(2) == [b"high", b"low"]
    shelf.queue.requeue([(0, 1)])
    shelf.queue.requeue([(5 << 55, (5 << 55) + 1)])
    shelf.queue.mark_exactly()
    shelf.end_pass()
    deliveries = shelf.open().take(9, 1 << 20, True)
    assert [(delivery.redelivered, delivery.batch.count) for delivery in deliveries] == [
        (True, 1),
        (True, 1),
        (False, 1),
    ]


@pytest.mark.parametrize("arguments", [{}, {"x_message_ttl": 70}])
def test_a_message_expires_at_the_head_and_not_before_its_time(
    shelf: Shelf, clock: HandClock, arguments: dict[str, Any]
) -> None:
    shelf.declare(**arguments)
    shelf.publish(b"a", ttl_ms=50)
    shelf.end_pass()
    assert shelf.queue.next_expiry_ms == clock.time_ms + 50
    clock.time_ms += 49
    shelf.queue.expire(clock.time_ms)
    assert shelf.queue.ready == 1
    clock.time_ms += 1
    assert shelf.take() == []
    assert shelf.queue.table(0)["expired"] == 1


def test_a_message_behind_one_that_stays_does_not_expire(shelf: Shelf, clock: HandClock) -> None:
    shelf.declare()
    shelf.publish(b"stays")
    shelf.publish(b"a", ttl_ms=50)
    shelf.end_pass()
    clock.time_ms += 100
    assert shelf.queue.next_expiry_ms is None
    shelf.queue.expire(clock.time_ms)
    assert shelf.queue.ready == 2
    assert shelf.take(1) == [b"stays"]
    shelf.end_pass()
    assert shelf.take(1) == []


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 3}, {"x_dead_letter_exchange": "dlx"}])
def test_what_has_expired_behind_the_head_is_not_delivered_along_with_it(
    shelf: Shelf, clock: HandClock, arguments: dict[str, Any]
) -> None:
    shelf.declare(**arguments)
    shelf.publish(b"stays")
    shelf.publish(b"a", b"b", ttl_ms=50)
    shelf.publish(b"stays, too")
    shelf.end_pass()
    clock.time_ms += 100
    assert shelf.take() == [b"stays", b"stays, too"]
    assert shelf.queue.table(0)["expired"] == 2
    assert not arguments.get("x_dead_letter_exchange") or shelf.outbox() == [(b"a", "expired"), (b"b", "expired")]


@pytest.mark.parametrize("arguments", [{}, {"x_message_ttl": 5000}])
@pytest.mark.parametrize("wrong_ms", [-3_600_000, 3_600_000])
def test_a_time_to_live_begins_in_the_queue_whatever_the_gateways_clock_says(
    shelf: Shelf, clock: HandClock, arguments: dict[str, Any], wrong_ms: int
) -> None:
    queue = shelf.declare(**arguments)
    queue.append(RecordBatch("ex", "key", 1, clock.time_ms + wrong_ms, 9, 0, 1, pack_many([b"a"]), ttl_ms=5000))
    shelf.end_pass()
    assert queue.next_expiry_ms == clock.time_ms + 5000


def test_a_time_to_live_of_0_lets_a_message_be_delivered_at_once_only(shelf: Shelf) -> None:
    shelf.declare(x_message_ttl=0)
    shelf.publish(b"a", b"b")
    assert shelf.take(1) == [b"a"]
    shelf.end_pass()
    assert shelf.take() == []


def test_times_to_live_are_known_after_a_restart(shelf: Shelf, clock: HandClock) -> None:
    shelf.declare()
    shelf.publish(b"a", ttl_ms=50)
    shelf.end_pass()
    assert shelf.open().next_expiry_ms == clock.time_ms + 50


@pytest.mark.parametrize("arguments", [{}, {"x_max_priority": 3}])
def test_of_many_that_expire_together_some_wait_for_the_next_pass_but_are_not_delivered(
    shelf: Shelf, clock: HandClock, arguments: dict[str, Any]
) -> None:
    queue = shelf.declare(**arguments)
    for _ in range(5):
        shelf.serial += 1  # they do not continue one another: five record batches
        shelf.publish(b"a", ttl_ms=50)
    shelf.publish(b"stays")
    shelf.end_pass()
    clock.time_ms += 50
    queue.expire(clock.time_ms, 2)
    assert queue.ready == 4
    assert queue.next_expiry_ms == clock.time_ms
    assert shelf.take() == [b"stays"]


def test_a_requeued_message_keeps_its_time(shelf: Shelf, clock: HandClock) -> None:
    shelf.declare(x_message_ttl=50)
    shelf.publish(b"a")
    assert shelf.take() == [b"a"]
    shelf.end_pass()
    clock.time_ms += 60
    shelf.queue.requeue([(0, 1)])
    shelf.end_pass()
    assert shelf.take() == []


def test_the_oldest_give_way_once_consumers_had_their_chance(shelf: Shelf) -> None:
    shelf.declare(x_max_length=2)
    shelf.publish(b"a", b"b", b"c", b"d")
    assert shelf.take(1) == [b"a"]
    shelf.end_pass()
    assert shelf.take() == [b"c", b"d"]
    assert shelf.queue.table(0)["dropped"] == 1


def test_the_lowest_priority_gives_way_first(shelf: Shelf) -> None:
    shelf.declare(x_max_length=2, x_max_priority=3)
    shelf.publish(b"high", priority=3)
    shelf.publish(b"low", b"low too")
    shelf.end_pass()
    assert shelf.take() == [b"high", b"low too"]


def test_only_bodies_count_as_bytes(shelf: Shelf) -> None:
    shelf.declare(x_max_length_bytes=300)
    shelf.publish(*[b"x" * 100] * 4)
    shelf.end_pass()
    assert shelf.queue.ready == 3
    shelf.open()
    shelf.publish(b"y" * 201)
    shelf.end_pass()
    assert shelf.take() == [b"y" * 201]


def test_a_full_queue_refuses_what_consumers_would_not_take_at_once(shelf: Shelf) -> None:
    shelf.declare(x_max_length=2, x_overflow="reject-publish")
    batch = RecordBatch("ex", "key", 1, 5, 9, 0, 9, pack_many([b"x"] * 9))
    assert shelf.queue.append(batch, 3) == 5
    assert shelf.queue.append(batch, 3) == 0
    assert shelf.queue.append(batch) == 0


def test_what_a_full_queue_refused_is_dead_lettered_also_after_a_crash(shelf: Shelf) -> None:
    shelf.declare(x_max_length=2, x_overflow="reject-publish-dlx", **DEAD_LETTERS)
    assert shelf.publish(b"a", b"b", b"c", b"d") == 2
    shelf.end_pass()
    assert shelf.queue.ready == 2
    shelf.open()
    assert shelf.queue.ready == 2
    assert shelf.outbox() == [(b"c", "maxlen"), (b"d", "maxlen")]


def test_a_message_dies_when_it_was_delivered_in_vain_too_often_and_that_is_known_after_a_crash(shelf: Shelf) -> None:
    shelf.declare(x_delivery_limit=2, **DEAD_LETTERS)
    shelf.publish(b"a", b"b")
    for delivery_count in range(3):
        deliveries = shelf.queue.take(1, 1 << 20, True)
        assert [delivery.delivery_count for delivery in deliveries] == [delivery_count]
        shelf.queue.requeue([(0, 1)])
        shelf.end_pass()
        if shelf.queue.outbox is not None and not shelf.queue.outbox.waiting:
            shelf.open()
    assert shelf.outbox() == [(b"a", "delivery_limit")]
    shelf.open()
    assert shelf.outbox() == [(b"a", "delivery_limit")]
    assert shelf.take() == [b"b"]


def test_messages_that_were_delivered_unequally_often_go_out_apart(shelf: Shelf) -> None:
    shelf.declare(x_delivery_limit=5)
    shelf.publish(*[b"%d" % number for number in range(6)])
    shelf.take()
    shelf.queue.requeue([(0, 6)])
    shelf.take(3)
    shelf.queue.requeue([(0, 3)])
    deliveries = shelf.queue.take(9, 1 << 20, True)
    assert [(delivery.first, delivery.delivery_count, delivery.batch.count) for delivery in deliveries] == [
        (0, 2, 3),
        (3, 1, 3),
    ]


def test_a_dead_letter_leaves_when_it_is_buried_and_goes_out_again_when_it_is_not(shelf: Shelf) -> None:
    shelf.declare(**DEAD_LETTERS)
    shelf.publish(b"a", b"b", b"c")
    shelf.take()
    shelf.queue.reject([(0, 3)])
    outbox = shelf.queue.outbox
    assert outbox is not None
    assert (shelf.queue.valid, shelf.queue.ready, shelf.queue.unacked) == (3, 0, 0)
    assert shelf.outbox() == [(b"a", "rejected"), (b"b", "rejected"), (b"c", "rejected")]
    assert not outbox.waiting
    outbox.buried([(1, 2)])
    outbox.retry([(0, 3)])
    assert shelf.outbox() == [(b"a", "rejected"), (b"c", "rejected")]
    outbox.buried([(0, 3)])
    assert (shelf.queue.valid, shelf.queue.table(0)["dead_lettered"]) == (0, 3)


def test_what_was_dying_in_a_crash_is_in_the_queue_again(shelf: Shelf) -> None:
    shelf.declare(**DEAD_LETTERS)
    shelf.publish(b"a", b"b")
    shelf.take()
    shelf.queue.reject([(0, 2)])
    assert len(shelf.outbox()) == 2
    assert shelf.queue.outbox is not None
    shelf.queue.outbox.buried([(0, 1)])
    shelf.end_pass()
    shelf.open()
    assert shelf.take() == [b"b"]


def test_overdue_messages_return_or_die_as_declared(shelf: Shelf) -> None:
    shelf.declare(x_consumer_timeout=5, x_consumer_timeout_action="dead-letter", **DEAD_LETTERS)
    shelf.publish(b"a")
    shelf.take()
    shelf.queue.time_out([(0, 1)])
    assert shelf.outbox() == [(b"a", "ack_timeout")]
    shelf.declare(x_consumer_timeout=5)
    shelf.take()
    shelf.queue.time_out([(0, 1)])
    assert shelf.queue.ready == 1


def test_looking_at_messages_changes_nothing(shelf: Shelf) -> None:
    shelf.declare(x_max_priority=3)
    shelf.publish(b"a", b"b", b"c")
    shelf.publish(b"h", priority=3)
    shelf.take(2)
    shelf.queue.requeue([(3 << 55, (3 << 55) + 1)])
    seen = [
        (delivery.redelivered, record.body)
        for delivery in shelf.queue.peek(0, 9)
        for record in unpack(delivery.batch.records, delivery.batch.count)
    ]
    assert seen == [(True, b"a"), (False, b"b"), (False, b"c")]
    assert shelf.queue.peek(1, 1)[0].first == (3 << 55) + 1
    assert shelf.queue.ready == 3
    assert shelf.take() == [b"a", b"b", b"c"]


def test_marks_of_stores_without_lanes_are_read(shelf: Shelf) -> None:
    shelf.declare()
    shelf.buffer.mark(7, 0, 44)
    shelf.end_pass()
    shelf.store.rest(1e12, False)
    contents = shelf.store.load()
    assert contents.marks == {(7, 0): 44}
    assert shelf.open().append(RecordBatch("", "q", 1, 5, 9, 0, 1, pack_many([b"x"]))) == 1
    assert shelf.queue.take(1, 1 << 20, True)[0].first == 44


def test_idle_queues_are_not_looked_at_by_the_collector(shelf: Shelf) -> None:
    shelf.declare()
    shelf.publish(b"a")
    shelf.end_pass()
    assert not shelf.buffer.compactable
    for _ in range(32):
        shelf.publish(b"a")
        shelf.end_pass()
    assert [subqueue.id for subqueue in shelf.buffer.compactable] == [shelf.queue.id]
    shelf.queue.retire()
    assert not shelf.buffer.compactable
