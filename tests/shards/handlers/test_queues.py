"""Queues about to be deleted, queues nobody uses, what is in a queue, how the shard is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.dialer import Dialer
from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.reads import Peek
from shardmq.bus.messages.shard import (
    Alarm,
    AssignQueue,
    Cancel,
    Counts,
    DropQueue,
    FromShard,
    Get,
    Got,
    Nack,
    PrepareDelete,
    Publish,
    PublishRefusal,
    Purge,
    Unused,
)
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, run_of

PLAIN = Queue("/", "q", 1, 0)
AUTO = Queue("/", "auto", 2, 0, durable=False, auto_delete=True)
OTHER = Queue("/", "other", 6, 0, durable=False, auto_delete=True)
EXPIRING = Queue("/", "expiring", 3, 0, arguments={"x-expires": 700})
COUNTED = Queue("/", "counted", 4, 0, arguments={"x-delivery-limit": 5})
HASTY = Queue("/", "hasty", 5, 0, arguments={"x-message-ttl": 100})


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(PLAIN, AUTO, COUNTED, HASTY)
    yield shard
    shard.close()


@pytest.fixture
def coordinator(shard: Shard) -> "Iterator[Dialer[FromShard]]":
    dialer = shard.dial("coordinator", "coordinator")
    yield dialer
    dialer.close()


def test_a_condemned_queue_takes_nothing_in_until_it_is_assigned_again(shard: Shard) -> None:
    shard.publish(Publish((1,), run_of(0, 2)))
    assert shard.ask(Call(5, PrepareDelete(1, True, False))) is None
    shard.send(Publish((1,), run_of(2, 1)), consume(1), Call(6, Get(2, 1, True)))
    assert shard.expect(PublishRefusal).code == 506
    assert [shard.expect(Refusal).code for _ in range(2)] == [404, 404]
    shard.ask(Call(7, AssignQueue([PLAIN])))
    shard.send(Call(8, Get(2, 1, False)))
    shard.expect(Got)
    assert shard.ask(Call(9, DropQueue(1))) == 1, "what somebody holds is not counted"


def test_a_policy_lets_nothing_into_a_condemned_queue(shard: Shard) -> None:
    shard.ask(Call(5, PrepareDelete(1, False, True)))
    given = Queue("/", "q", 1, 0, policy={"x-max-length": 5})
    shard.ask(Call(6, AssignQueue([given], is_change=True)))
    shard.send(Publish((1,), run_of(0, 1)))
    assert "is being deleted" in shard.expect(PublishRefusal).text
    shard.ask(Call(7, AssignQueue([given])))
    shard.send(*[Publish((1,), run_of(number, 1)) for number in range(7)])
    shard.until(lambda: bool(shard.queue()["ready"] == 5))


def test_a_queue_in_use_or_not_empty_is_not_condemned(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 2)), Call(5, PrepareDelete(1, False, True)))
    refusal = shard.expect(Refusal)
    assert refusal.code == 406
    assert "queue 'q' in vhost '/' not empty" in refusal.text
    shard.send(consume(1), Call(6, PrepareDelete(1, True, False)))
    refusal = shard.expect(Refusal)
    assert refusal.code == 406
    assert "queue 'q' in vhost '/' in use" in refusal.text
    shard.ask(Call(7, PrepareDelete(1, False, True)))
    shard.send(Call(8, PrepareDelete(99, False, False)))
    assert shard.expect(Refusal).code == 404


def test_an_auto_delete_queue_is_unused_when_its_last_consumer_is_gone(
    shard: Shard, coordinator: "Dialer[FromShard]"
) -> None:
    shard.ask(consume(1, queue=2))
    shard.ask(consume(2, queue=2))
    shard.ask(Call(5, Cancel(1)))
    shard.ask(Call(6, Counts(2)))
    assert not [one for one in shard.inbox if isinstance(one, Unused)]
    shard.ask(Call(7, Cancel(2)))
    assert shard.expect(Unused, dialer=coordinator).queue == 2


def test_a_queue_that_lost_its_consumers_and_is_declared_again_waits_for_new_ones(
    shard: Shard, coordinator: "Dialer[FromShard]"
) -> None:
    shard.assign(OTHER)
    shard.ask(consume(1, queue=2))
    shard.ask(consume(2, queue=6))
    shard.redial()
    assert shard.ask(Call(6, Counts(2, is_declared=True))) == [0, 0]
    assert shard.ask(Call(7, Counts(6))) == [0, 0]
    assert shard.expect(Unused, dialer=coordinator).queue == 6
    shard.ask(consume(1, queue=2))
    shard.ask(Call(8, Cancel(1)))
    assert shard.expect(Unused, dialer=coordinator).queue == 2


def test_nobody_uses_a_queue_again_that_is_to_go(shard: Shard, coordinator: "Dialer[FromShard]") -> None:
    shard.ask(consume(1, queue=2))
    shard.ask(Call(5, Cancel(1)))
    shard.send(consume(2, queue=2), Call(6, Counts(2)), Call(7, Get(9, 2, False)), Call(8, Purge(2)))
    assert [shard.expect(Refusal).code for _ in range(4)] == [404] * 4
    shard.expect(Unused, dialer=coordinator)


def test_what_is_published_to_a_queue_that_is_to_go_is_confirmed_and_goes_with_it(
    shard: Shard, coordinator: "Dialer[FromShard]"
) -> None:
    shard.ask(consume(1, queue=2))
    shard.ask(Call(5, Cancel(1)))
    shard.expect(Unused, dialer=coordinator)
    shard.publish(Publish((1, 2), run_of(0, 2)))
    coordinator.post(Call(1, PrepareDelete(2, True, False)))
    coordinator.flush()
    shard.expect(Answer, dialer=coordinator)
    shard.publish(Publish((1, 2), run_of(2, 2)))
    assert shard.ask(Call(6, Counts(1))) == [4, 0]
    assert shard.ask(Call(7, DropQueue(2))) == 4


def test_a_new_coordinator_is_told_again_what_is_still_unused(shard: Shard) -> None:
    shard.ask(consume(1, queue=2))
    shard.ask(Call(7, Cancel(1)))
    for _ in range(2):
        coordinator = shard.dial("coordinator", "coordinator")
        assert shard.expect(Unused, dialer=coordinator).queue == 2
        coordinator.close()


def test_a_coordinator_that_gives_a_queue_back_is_told_again_that_it_is_unused(
    shard: Shard, coordinator: "Dialer[FromShard]"
) -> None:
    shard.ask(consume(1, queue=2))
    shard.ask(Call(5, Cancel(1)))
    shard.expect(Unused, dialer=coordinator)
    shard.assign(AUTO)
    assert shard.expect(Unused, dialer=coordinator).queue == 2


def test_a_queue_nobody_uses_for_its_time_is_unused(shard: Shard, coordinator: "Dialer[FromShard]") -> None:
    shard.assign(EXPIRING)
    shard.ask(consume(1, queue=3))
    shard.ask(Call(5, Cancel(1)))
    assert shard.ask(Call(6, Counts(3))) == [0, 0], "its time begins when it is used last"
    shard.expect(Unused, dialer=coordinator)
    shard.send(Call(7, Counts(3)))
    assert shard.expect(Refusal).code == 404


def test_messages_expire_without_consumers(shard: Shard) -> None:
    shard.publish(Publish((5,), run_of(0, 3)))
    shard.until(lambda: shard.ask(Call(6, Counts(5))) == [0, 0])
    batch = run_of(5, 2)
    batch.ttl_ms = 0
    shard.publish(Publish((1,), batch))
    shard.until(lambda: shard.ask(Call(7, Counts(1))) == [0, 0])
    assert shard.queue()["expired"] == 2


def test_peeking_changes_nothing(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 5)), Call(4, Get(9, 1, False)))
    shard.expect(Got)
    looked = shard.ask(Call(5, Peek(1, 1, 2)))
    assert [(first, redelivered, delivery_count, batch[6]) for first, redelivered, delivery_count, batch in looked] == [
        (2, False, 0, 2)
    ]
    assert shard.ask(Call(6, Counts(1))) == [4, 0]


def test_deliveries_in_vain_are_told(shard: Shard) -> None:
    shard.send(Publish((4,), run_of(0, 1)), Call(4, Get(9, 4, False)))
    assert shard.expect(Got).deliveries == 0
    shard.send(Nack(9, [(0, 1)], True), Call(5, Get(9, 4, False)))
    assert shard.expect(Got).deliveries == 1
    shard.send(Nack(9, [(0, 1)], True), consume(1, queue=4))
    assert shard.delivered(1)[0].deliveries == 2


def test_the_status_names_consumers(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 5)), consume(7, prefetch=3))
    shard.delivered(3)
    assert shard.queue()["consumer_list"] == [
        {
            "gateway": "gateway-0",
            "consumer": 7,
            "prefetch": 3,
            "auto_ack": False,
            "priority": 0,
            "exclusive": False,
            "active": True,
            "unacked": 3,
            "ack_latency_ms": None,
            "ack_latency_ms_max": None,
        }
    ]
    assert shard.ask(Call(5, Inspect()))["alarms"] == []


@pytest.mark.parametrize("option", [{"rss_bytes_max": 1 << 20}, {"disk_free_bytes_min": 1 << 60}])
def test_alarms_are_told_to_every_gateway(tmp_path: Path, option: dict[str, int]) -> None:
    shard = Shard(tmp_path, **option)
    resource = "memory" if "rss_bytes_max" in option else "disk"
    first = shard.expect(Alarm)
    assert (first.resource, first.is_on) == (resource, True)
    second = shard.dial("gateway-1")
    assert shard.expect(Alarm, dialer=second).text.startswith(f"{resource} alarm on shard-0 set")
    assert len(shard.ask(Call(5, Inspect()))["alarms"]) == 1
    second.close()
    shard.close()


def test_a_memory_alarm_ends_when_the_memory_is_free_again(tmp_path: Path) -> None:
    shard = Shard(tmp_path, memory_bytes=400 << 20, rss_bytes_max=160 << 20)
    shard.assign(PLAIN)
    for _ in range(16):
        shard.publish(Publish((1,), RecordBatch("ex", "key", 1, 5, 9, 0, 8, pack_many([bytes(1 << 20)] * 8))))
    assert shard.expect(Alarm).is_on
    shard.ask(Call(5, Purge(1)))
    assert not shard.expect(Alarm).is_on
    shard.close()


def test_nobody_sees_a_queue_over_its_bounds(shard: Shard) -> None:
    shard.assign(Queue("/", "narrow", 6, 0, arguments={"x-max-length": 3}))
    shard.send(Publish((6,), run_of(0, 10)), Call(7, Counts(6)), Call(8, Peek(6, 0, 10)), Call(9, Inspect()))
    assert shard.expect(Answer, lambda answer: answer.request == 7).result == [3, 0]
    assert [delivery[0] for delivery in shard.expect(Answer, lambda answer: answer.request == 8).result] == [7]
    tables = shard.expect(Answer, lambda answer: answer.request == 9).result["queues"]
    assert next(table for table in tables if table["id"] == 6)["ready"] == 3
