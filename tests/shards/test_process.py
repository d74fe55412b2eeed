"""A shard as a process, over its real link: what a gateway sees of it, also when it is killed."""

import random
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.link import LinkLost
from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.shard import (
    Ack,
    AssignQueue,
    Cancel,
    Cancelled,
    Confirmed,
    Consume,
    Counts,
    Credit,
    Delivered,
    DropQueue,
    Gateways,
    Get,
    Got,
    Nack,
    Permit,
    Publish,
    PublishRefusal,
    Purge,
    Qos,
    Release,
    Spent,
    Wanted,
)
from shardmq.bus.messages.stores import Recorded
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, numbers, run_of


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(Queue("/", "q", 1, 0), Queue("/", "volatile", 2, 0, durable=False))
    yield shard
    shard.close()


def test_published_messages_are_confirmed_and_delivered_in_order(shard: Shard) -> None:
    shard.ask(consume(1))
    shard.send(Publish((1,), run_of(0, 100)), Publish((1, 2), run_of(100, 5)), Publish((1, 99), run_of(105, 1)))
    assert shard.expect(PublishRefusal).number == 3
    assert shard.expect(Confirmed, lambda confirmed: confirmed.upto == 3)
    assert numbers(shard.delivered(106)) == list(range(106))
    assert shard.ask(Call(9, Counts(2))) == [5, 0]
    assert shard.ask(Call(10, Counts(1))) == [0, 1]


def test_two_consumers_share_what_is_ready_evenly(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 100)))
    shard.expect(Confirmed)
    shard.send(consume(1, prefetch=10), consume(2, prefetch=10))
    delivery_count = shard.delivered(20)
    assert {one.consumer: one.batch.count for one in delivery_count} == {1: 10, 2: 10}
    shard.send(Ack(1, [(0, 100)]), Ack(2, [(0, 5000)]))
    assert numbers(shard.delivered(20)) == list(range(20, 40))


def test_single_messages_go_to_the_consumers_in_turn(shard: Shard) -> None:
    shard.send(consume(1), consume(2))
    turns = []
    for number in range(6):
        shard.send(Publish((1,), run_of(number, 1)))
        turns += [one.consumer for one in shard.delivered(1)]
    assert turns in ([1, 2] * 3, [2, 1] * 3)


def test_the_window_bounds_what_is_under_way(shard: Shard) -> None:
    big = pack_many([b"x" * 1000] * 50)
    shard.send(Call(5, Consume(1, 1, 0, False, 4000)), Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 50, big)))
    first = shard.delivered(3)
    assert shard.ask(Call(6, Counts(1))) == [47, 1]
    shard.send(Credit(1, sum(len(one.batch.records) for one in first)))
    shard.delivered(3)
    assert shard.ask(Call(7, Counts(1))) == [44, 1]


def test_a_message_larger_than_the_window_goes_alone_when_there_is_room_for_it(shard: Shard) -> None:
    shard.send(
        Call(5, Consume(1, 1, 0, False, 100)),
        Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 3, pack_many([b"x" * 999] * 3))),
    )
    size = shard.expect(Wanted).size
    assert size > 999
    assert shard.ask(Call(6, Counts(1))) == [3, 1]
    shard.send(Permit(1, size))
    assert shard.delivered(1)[0].batch.count == 1
    assert shard.expect(Spent) == Spent(1, size, size)
    assert shard.expect(Wanted) == Wanted(1, size)
    assert shard.ask(Call(7, Counts(1))) == [2, 1]


def test_room_that_nobody_uses_is_given_back_in_the_same_pass(shard: Shard) -> None:
    shard.send(
        Call(5, Consume(1, 1, 0, False, 100)),
        Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([b"x" * 999]))),
    )
    size = shard.expect(Wanted).size
    shard.send(Call(6, Purge(1)), Permit(1, size))
    assert shard.expect(Spent) == Spent(1, size, 0)
    shard.send(Publish((1,), run_of(0, 1)))
    assert numbers(shard.delivered(1)) == [0]


def test_a_get_is_told_the_size_of_a_message_there_is_no_room_for(shard: Shard) -> None:
    shard.send(Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([b"x" * 999]))))
    size = shard.ask(Call(5, Get(1, 1, True, 100)))
    assert size > 999
    shard.send(Call(6, Get(1, 1, True, size)))
    assert shard.expect(Got).ready == 0
    assert shard.ask(Call(7, Get(1, 1, True, 100))) is None


def test_returned_and_lost_messages_come_first_at_their_place_and_marked(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 30)), consume(1, prefetch=20))
    assert not any(one.redelivered for one in shard.delivered(20))
    shard.send(Nack(1, [(3, 5)], True), Nack(1, [(7, 8)], False))
    again = shard.delivered(3)
    assert [(one.redelivered, numbers([one])) for one in again] == [(True, [3, 4]), (False, [20])]
    shard.begin_anew()
    shard.send(consume(1))
    delivery_count = shard.delivered(29)
    assert numbers(delivery_count) == [n for n in range(30) if n != 7]
    assert [one.redelivered for one in delivery_count for _ in range(one.batch.count)] == [True] * 20 + [False] * 9


def test_get_hands_out_one_and_release_gives_it_back(shard: Shard) -> None:
    assert shard.ask(Call(5, Get(1, 1, False))) is None
    shard.send(Publish((1,), run_of(0, 3)), Call(6, Get(1, 1, False)), Call(7, Get(2, 1, True)))
    got = shard.expect(Got, lambda got: got.request == 6)
    assert (got.first, got.redelivered, got.ready) == (0, False, 2)
    assert shard.expect(Got).ready == 1
    shard.send(Release(1), Call(8, Get(3, 1, False)))
    again = shard.expect(Got)
    assert (again.first, again.redelivered, again.ready) == (0, True, 1)
    shard.send(Call(9, Get(3, 99, False)))
    assert shard.expect(Refusal).code == 404


def test_a_cancelled_consumer_keeps_what_it_holds_and_gets_no_more(shard: Shard) -> None:
    shard.send(consume(1, prefetch=2), Publish((1,), run_of(0, 5)))
    shard.delivered(2)
    shard.ask(Call(6, Cancel(1)))
    shard.send(Ack(1, [(0, 1)]))
    assert shard.ask(Call(7, Counts(1))) == [3, 0]
    assert not [one for one in shard.inbox if isinstance(one, Delivered)]
    shard.send(Release(1))
    assert shard.ask(Call(8, Counts(1))) == [4, 0]


def test_what_was_on_its_way_to_a_consumer_that_ended_is_put_back_as_it_was(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 10)), consume(1, prefetch=6))
    shard.delivered(6)
    shard.send(Ack(1, [(0, 2)]), Release(1, True), Call(7, Get(2, 1, False)))
    got = shard.expect(Got)
    assert (got.first, got.redelivered, got.ready) == (2, False, 7)
    shard.send(Release(2), consume(3))
    again = [(one.redelivered, numbers([one])) for one in shard.delivered(8)]
    assert again == [(True, [2]), (False, list(range(3, 10)))]


def test_what_is_put_back_unseen_stays_marked_where_it_was_seen_before(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 3)), consume(1))
    shard.delivered(3)
    shard.send(Nack(1, [(1, 2)], True))
    shard.delivered(1)
    shard.send(Ack(1, [(0, 1), (2, 3)]), Release(1, True), consume(2), Publish((1,), run_of(3, 1)))
    assert [(one.redelivered, numbers([one])) for one in shard.delivered(2)] == [(True, [1]), (False, [3])]


def test_what_is_put_back_unseen_behind_what_others_got_is_there_once(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 4)), consume(1, prefetch=2))
    shard.delivered(2)
    shard.send(consume(2, prefetch=2))
    shard.delivered(2)
    shard.send(Release(1, True), consume(3))
    assert numbers(shard.delivered(2)) == [0, 1]
    shard.send(Ack(2, [(2, 4)]), Ack(3, [(0, 2)]))
    assert shard.ask(Call(9, Counts(1))) == [0, 2]


def test_what_was_put_back_is_there_after_a_crash(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 10)), consume(1))
    shard.delivered(10)
    shard.send(Release(1, True))
    shard.ask(Call(8, Counts(1)))
    shard.stop(signal.SIGKILL)
    shard.start()
    shard.redial()
    shard.send(consume(1))
    assert numbers(shard.delivered(10)) == list(range(10))


def test_gateways_hear_how_many_they_are(shard: Shard) -> None:
    assert shard.ask(Call(8, Counts(1))) == [0, 0]
    assert [one.count for one in shard.inbox if isinstance(one, Gateways)][-1:] == [1]


def test_prefetch_can_be_changed(shard: Shard) -> None:
    shard.send(consume(1, prefetch=1), Publish((1,), run_of(0, 5)))
    shard.delivered(1)
    shard.ask(Call(6, Qos(1, 3)))
    assert numbers(shard.delivered(2)) == [1, 2]


def test_purge_leaves_what_is_unacked(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 500)), consume(1, prefetch=2))
    shard.delivered(2)
    assert shard.ask(Call(6, Purge(1))) == 498
    shard.stop(signal.SIGKILL)
    shard.start()
    shard.redial()
    assert shard.ask(Call(7, Counts(1))) == [2, 0]
    assert shard.ask(Call(8, Inspect()))["queues"][0]["valid"] == 2


def test_a_dropped_queue_is_gone_after_a_kill_too(shard: Shard) -> None:
    shard.send(consume(1, prefetch=1), Publish((1,), run_of(0, 50)))
    shard.delivered(1)
    assert shard.ask(Call(6, DropQueue(1))) == 49
    assert shard.expect(Cancelled).consumer == 1
    assert shard.ask(Call(7, DropQueue(1))) == 0
    shard.stop(signal.SIGKILL)
    shard.start()
    shard.redial()
    assert shard.ask(Call(8, Inspect()))["queues"] == []


def test_a_clean_stop_keeps_what_is_persistent_and_knows_what_was_delivered(shard: Shard) -> None:
    shard.send(Publish((1, 2), run_of(0, 10)), Publish((1,), run_of(10, 5, flags=0)), Publish((1,), run_of(15, 5)))
    shard.send(consume(1, prefetch=4))
    shard.delivered(4)
    assert shard.stop() == 0
    shard.start()
    shard.redial()
    shard.send(consume(1))
    delivery_count = shard.delivered(15)
    assert numbers(delivery_count) == [*range(10), *range(15, 20)]
    assert [one.redelivered for one in delivery_count for _ in range(one.batch.count)] == [True] * 4 + [False] * 11
    shard.send(Call(7, Counts(2)))
    assert shard.expect(Refusal).code == 404


def test_the_coordinator_and_the_gateway_hear_the_same_of_a_dropped_queue(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 50)))
    shard.expect(Confirmed)
    coordinator = shard.dial("coordinator", "coordinator")
    assert shard.ask(Call(6, DropQueue(1))) == 50
    coordinator.post(Call(1, DropQueue(1)))
    coordinator.flush()
    assert shard.expect(Answer, lambda answer: answer.request == 1, dialer=coordinator).result == 50
    assert shard.ask(Call(7, DropQueue(1))) == 0
    shard.restart()  # at once: what the coordinator was answered is on disk
    assert shard.ask(Call(8, Inspect()))["queues"] == []
    coordinator.close()


def publish_to_a_full_disk(shard: Shard) -> None:
    """Publish more than the disk takes, until the shard learns of it from a commit.

    Where it has looked at its disk just before, it refuses the publish.
    """
    pid = shard.process.pid
    big = RecordBatch("ex", "key", 1, 5, 9, 0, 1, pack_many([b"x" * 1_000_000]))
    for _ in range(50):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        shard.send(Publish((1,), big))
        while shard.process.poll() is None:
            if any(isinstance(message, PublishRefusal) for message in shard.inbox):
                break
            shard.poll(shard.dialer)
        else:
            return
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        shard.inbox.clear()
        until = time.monotonic() + 0.2  # it looks again
        while time.monotonic() < until:
            shard.poll(shard.dialer)
        shard.inbox.clear()
    raise AssertionError("the shard always saw in time that its disk is full")


def test_a_full_disk_ends_the_process_and_loses_nothing_confirmed(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 100)))
    shard.expect(Confirmed)
    publish_to_a_full_disk(shard)
    assert shard.process.wait(60) == 1
    assert not [message for message in shard.inbox if isinstance(message, Confirmed)]
    shard.start()
    shard.redial()
    shard.send(consume(1))
    assert numbers(shard.delivered(100)) == list(range(100))


def test_killed_at_random_moments_nothing_confirmed_is_lost_and_copies_are_marked(shard: Shard) -> None:
    dice = random.Random(11)
    published = 0
    confirmed: set[int] = set()
    seen: set[int] = set()
    settled: set[int] = set()
    for _ in range(8):
        shard.send(consume(1, prefetch=500))
        base, sizes = published, [0]
        stop_at = time.monotonic() + dice.uniform(0.05, 0.5)
        latest = 0
        while time.monotonic() < stop_at:
            for _ in range(dice.randint(0, 5)):
                count = dice.choice([1, 1, 7, 100])
                shard.send(Publish((1,), run_of(published, count)))
                published += count
                sizes.append(published - base)
            shard.poll(shard.dialer)
            inbox, shard.inbox = shard.inbox, []
            for message in inbox:
                assert not isinstance(message, LinkLost)
                if isinstance(message, Confirmed):
                    latest = message.upto
                elif isinstance(message, Delivered):
                    fresh = set(numbers([message]))
                    assert message.redelivered or not fresh & seen
                    seen |= fresh
                    if dice.random() < 0.8:
                        settled |= fresh
                        shard.send(Ack(1, [(message.first, message.first + message.batch.count)]))
                    shard.send(Credit(1, len(message.batch.records)))
        confirmed |= set(range(base, base + sizes[latest]))
        shard.stop(signal.SIGKILL)
        shard.start()
        shard.redial()
    ready = shard.ask(Call(7, Counts(1)))[0]
    shard.send(consume(1))
    rest = numbers(shard.delivered(ready))
    assert rest == sorted(set(rest))
    assert confirmed <= set(rest) | settled
    assert set(rest) <= set(range(published))
    assert confirmed


def test_what_was_declared_is_on_disk_soon_and_with_the_first_message_at_once(shard: Shard) -> None:
    shard.ask(Call(1, AssignQueue([Queue("/", "used", 8, 0)])))
    shard.publish(Publish((8,), run_of(0, 1)))
    shard.restart()
    assert shard.ask(Call(2, Counts(8))) == [1, 0]
    shard.ask(Call(3, AssignQueue([Queue("/", "idle", 9, 0)])))
    shard.send(Recorded(9))
    deadline = time.monotonic() + 60
    while not any(b"idle" in path.read_bytes() for path in shard.folder.rglob("*") if path.is_file()):
        assert time.monotonic() < deadline, "it is not written"
        shard.poll(shard.dialer)
    shard.restart()
    assert shard.ask(Call(4, Counts(9))) == [0, 0]
