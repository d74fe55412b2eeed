"""Many publishes or acks as one message: they have the effects and the answers of each by itself."""

from collections.abc import Iterator

import pytest

from shardmq.bus.messages.columns import Acks, Publishes
from shardmq.bus.messages.shard import Confirmed, Delivered, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.message.record import pack_many
from shardmq.message.record_batch import PERSISTENT
from shardmq.shards.pass_size import CONVERSATION_EVENTS
from shardmq.topology.entities import Queue
from tests.shards.driver import consume, numbers
from tests.shards.inside import Inside, inside

QUEUES = (
    Queue("/", "a", 1, 0),
    Queue("/", "b", 2, 0),
    Queue("/", "short", 3, 0, arguments={"x-max-length": 2, "x-overflow": "reject-publish"}),
    Queue("/", "latest", 4, 0, arguments={"x-max-length": 1}),
)
MISSING = 99


@pytest.fixture
def shard() -> Iterator[Inside]:
    with inside() as shard:
        shard.assign(*QUEUES)
        yield shard


def columns(start: int, *publishes: tuple[int, int]) -> Publishes:
    """Messages `start` and so on: to queues, so many each."""
    queues, counts = [queue for queue, _ in publishes], [count for _, count in publishes]
    records = []
    number = start
    for count in counts:
        records.append(pack_many([b"%d" % each for each in range(number, number + count)]))
        number += count
    keys = [f"key-{queue}" for queue in queues]
    return Publishes("ex", PERSISTENT, 0, 5, 9, 1000 + start, queues, keys, counts, records)


def publish(shard: Inside, message: Publishes) -> list[PublishRefusal]:
    """Send it, and wait for its confirm; returns what was refused."""
    shard.published += len(message.queues)
    shard.send(message)
    shard.expect(Confirmed, lambda confirmed: confirmed.upto == shard.published)
    refusals = [heard for heard in shard.inbox if isinstance(heard, PublishRefusal)]
    shard.inbox = [heard for heard in shard.inbox if not isinstance(heard, PublishRefusal)]
    return refusals


def test_each_publish_is_in_its_queue_with_its_key_and_ids(shard: Inside) -> None:
    shard.ask(consume(1, 1))
    shard.ask(consume(2, 2))
    assert publish(shard, columns(0, (1, 1), (2, 2), (1, 1))) == []
    first, second = (shard.expect(Delivered, lambda one: one.consumer == 1) for _ in range(2))
    other = shard.expect(Delivered, lambda one: one.consumer == 2)
    found = [(one.batch.routing_key, one.batch.serial, numbers([one])) for one in (first, other, second)]
    assert found == [("key-1", 1000, [0]), ("key-2", 1001, [1, 2]), ("key-1", 1003, [3])]
    assert {(one.batch.exchange, one.batch.timestamp_ms, one.batch.origin) for one in (first, other)} == {("ex", 5, 9)}


def test_they_survive_a_crash(shard: Inside) -> None:
    publish(shard, columns(0, (1, 1), (2, 2)))
    shard.restart()
    assert shard.contents(1) == [0]
    assert shard.contents(2) == [1, 2]


def test_one_to_a_missing_queue_is_refused_by_its_number_and_the_others_are_taken(shard: Inside) -> None:
    publish(shard, columns(0, (1, 1)))
    (refusal,) = publish(shard, columns(1, (1, 1), (MISSING, 3), (2, 1)))
    assert (refusal.number, refusal.code, refusal.taken) == (3, ReplyCode.NOT_FOUND, 0)
    assert shard.contents(1) == [0, 1]
    assert shard.contents(2) == [5]


def test_one_that_a_full_queue_takes_in_part_is_refused_but_for_that_part(shard: Inside) -> None:
    first, second = publish(shard, columns(0, (3, 1), (1, 1), (3, 3), (3, 1), (2, 1)))
    assert [(each.number, each.code, each.taken) for each in (first, second)] == [
        (3, ReplyCode.RESOURCE_ERROR, 1),
        (4, ReplyCode.RESOURCE_ERROR, 0),
    ]
    assert shard.contents(3) == [0, 2]
    assert shard.contents(2) == [6]


def test_a_queue_with_a_length_limit_drops_its_oldest(shard: Inside) -> None:
    assert publish(shard, columns(0, (4, 1), (1, 1), (4, 2))) == []
    assert shard.contents(4) == [3]


def test_on_a_full_disk_all_are_refused(shard: Inside) -> None:
    shard.loop._store.space.left = 0
    refused = publish(shard, columns(0, (1, 1), (2, 2)))
    assert [each.number for each in refused] == [1, 2]
    assert all("is full" in each.text for each in refused)


def test_acks_settle_what_each_consumer_holds_and_strangers_are_passed_over(shard: Inside) -> None:
    for number in (1, 2):
        shard.ask(consume(number, number, prefetch=2))
    publish(shard, columns(0, (1, 3), (2, 3)))
    shard.expect(Delivered)
    shard.expect(Delivered)
    shard.send(Acks([1, 77, 2], [0, 0, 0], [2, 1, 1]))
    found = sorted(numbers([shard.expect(Delivered), shard.expect(Delivered)]))
    assert found == [2, 5]
    tables = {table["id"]: table for table in shard.loop.table()["queues"]}
    assert (tables[1]["acked"], tables[2]["acked"]) == (2, 1)
    assert (tables[1]["unacked"], tables[2]["unacked"]) == (1, 2)


def test_what_comes_in_columns_counts_message_by_message_for_a_conversation(shard: Inside) -> None:
    conversing = []
    shard.after_pass = lambda: conversing.append(shard.loop.is_conversing)
    publish(shard, columns(0, (1, 1), (2, 1)))
    assert any(conversing)
    conversing.clear()
    publish(shard, columns(2, *[(1, 1)] * (CONVERSATION_EVENTS + 1)))
    assert not any(conversing)
