"""Dead letters on their way out: posted to gateways, sent again until they are where they should be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused
from shardmq.bus.messages.shard import Ack, Nack, Publish, Release
from shardmq.limits import LETTER_PRODUCERS
from shardmq.message.record import pack_many, unpack
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.handlers.dead_letters import LETTERS_BYTES_MAX
from shardmq.shards.queues.dead_letter_outbox import GONE_EVERY
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, consume, numbers, run_of

QUEUES = (
    Queue("/", "q", 1, 0, arguments={"x-dead-letter-exchange": "dlx"}),
    Queue("/", "short", 2, 0, arguments={"x-dead-letter-exchange": "dlx", "x-max-length": 2}),
    Queue("/", "hasty", 3, 0, arguments={"x-dead-letter-exchange": "dlx", "x-message-ttl": 50}),
    Queue("/", "picky", 4, 0, arguments={"x-dead-letter-exchange": "dlx", "x-delivery-limit": 1}),
    Queue("/", "plain", 5, 0),
)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def bodies(dead: DeadLetter) -> list[int]:
    return [int(record.body) for record in unpack(dead.batch.records, dead.batch.count)]


def arrived(dead: DeadLetter) -> DeadLetterAccepted:
    return DeadLetterAccepted(dead.queue, [(dead.first, dead.first + dead.batch.count)])


def test_rejected_messages_stay_until_they_have_arrived(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 4)), consume(1))
    shard.delivered(4)
    shard.send(Nack(1, [(1, 3)], False))
    dead = shard.expect(DeadLetter)
    assert (dead.queue, dead.first, dead.reason, bodies(dead)) == (1, 1, "rejected", [1, 2])
    assert shard.queue()["valid"] == 4
    assert shard.queue()["dying"] == 2
    shard.send(arrived(dead))
    assert shard.queue()["valid"] == 2
    shard.send(arrived(dead))
    assert shard.queue()["dying"] == 0


def test_reasons_are_told(shard: Shard) -> None:
    shard.send(Publish((2, 3, 4), run_of(0, 3)), consume(1, queue=4))
    reasons = {dead.queue: dead.reason for dead in (shard.expect(DeadLetter), shard.expect(DeadLetter))}
    assert reasons == {2: "maxlen", 3: "expired"}
    shard.delivered(3)
    shard.send(Nack(1, [(0, 1)], True))
    shard.delivered(1)
    shard.send(Nack(1, [(0, 1)], True))
    dead = shard.expect(DeadLetter)
    assert (dead.queue, dead.reason, dead.deliveries) == (4, "delivery_limit", 2)


def test_a_refused_letter_is_sent_again_after_a_while(shard: Shard) -> None:
    shard.send(Publish((2,), run_of(0, 5)))
    dead = shard.expect(DeadLetter)
    shard.send(DeadLetterRefused(2, [(0, 1)]), DeadLetterAccepted(2, [(1, 3)]))
    again = shard.expect(DeadLetter)
    assert (bodies(dead), bodies(again)) == ([0, 1, 2], [0])
    shard.send(arrived(again))
    assert shard.queue(2)["valid"] == 2


def test_a_lost_gateways_letters_go_to_another_one(shard: Shard) -> None:
    shard.send(Publish((2,), run_of(0, 5)))
    dead = shard.expect(DeadLetter)
    other = shard.dial("gateway-1")
    shard.dialer._lose("for the test")
    shard.inbox.clear()
    shard.dialer, lost = other, shard.dialer
    lost.tick(1e12)
    again = shard.expect(DeadLetter)
    assert bodies(again) == bodies(dead)
    lost.close()


def test_letters_wait_for_a_gateway(shard: Shard) -> None:
    shard.dialer.close()
    shard.inbox.clear()
    shard.dialer = shard.dial("coordinator", "coordinator")
    shard.send(Publish((2,), run_of(0, 5)))
    shard.until(lambda: bool(shard.queue(2)["dying"] == 3))
    assert not [one for one in shard.inbox if isinstance(one, DeadLetter)]
    shard.redial()
    assert bodies(shard.expect(DeadLetter)) == [0, 1, 2]


def test_letters_under_way_when_the_shard_is_killed_are_not_lost(shard: Shard) -> None:
    shard.send(Publish((1, 3), run_of(0, 5)), consume(1))
    shard.delivered(5)
    shard.send(Nack(1, [(0, 5)], False))
    shard.expect(DeadLetter, lambda dead: dead.queue == 1)
    shard.expect(DeadLetter, lambda dead: dead.queue == 3)
    shard.restart()
    assert bodies(shard.expect(DeadLetter, lambda dead: dead.queue == 3)) == [0, 1, 2, 3, 4]
    shard.send(consume(1))
    assert sum(one.batch.count for one in shard.delivered(5)) == 5


def test_no_more_than_some_is_under_way(shard: Shard) -> None:
    big = RecordBatch("ex", "key", 1, 5, 9, 0, 20, pack_many([bytes(500_000)] * 20))
    shard.send(Publish((2,), big))
    letters: list[DeadLetter] = []
    while sum(dead.batch.count for dead in letters) < 18:
        shard.until(lambda: any(isinstance(one, DeadLetter) for one in shard.inbox))
        shard.ask(consume(len(letters) + 1, queue=5))
        letters += [one for one in shard.inbox if isinstance(one, DeadLetter)]
        here = [one for one in shard.inbox if isinstance(one, DeadLetter)]
        assert sum(len(dead.batch.records) for dead in here) <= LETTERS_BYTES_MAX + 500_100
        shard.inbox.clear()
        shard.send(*[arrived(dead) for dead in here])
    assert shard.queue(2)["dying"] == 0


def test_without_a_dead_letter_exchange_they_are_dropped(shard: Shard) -> None:
    shard.send(Publish((5,), run_of(0, 4)), consume(1, queue=5))
    shard.delivered(4)
    shard.send(Nack(1, [(0, 2)], False), Release(1))
    assert shard.queue(5)["valid"] == 2
    assert not [one for one in shard.inbox if isinstance(one, DeadLetter)]


def reject(shard: Shard, start: int, end: int, queue: int = 1) -> DeadLetter:
    """Reject what consumer 1 has, and answer for it; returns the last letter."""
    shard.send(Nack(1, [(start, end)], False))
    dead = shard.expect(DeadLetter, lambda dead: dead.queue == queue)
    shard.send(arrived(dead))
    return dead


def test_a_message_dies_under_the_same_number_of_the_same_producer_after_a_kill(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 5)), consume(1))
    shard.delivered(5)
    shard.send(Nack(1, [(2, 4)], False))
    before = shard.expect(DeadLetter)
    shard.restart()
    shard.ask(consume(1))
    shard.delivered(5)
    shard.send(Nack(1, [(0, 5)], False))
    after = shard.expect(DeadLetter)
    assert (before.producer, after.producer) == (LETTER_PRODUCERS + 1, LETTER_PRODUCERS + 1)
    assert (before.first, bodies(before), after.first, bodies(after)) == (2, [2, 3], 0, [0, 1, 2, 3, 4])


def test_numbers_that_others_get_after_a_kill_are_another_producers(shard: Shard) -> None:
    shard.assign(Queue("/", "fleeting", 6, 0, durable=False, arguments={"x-dead-letter-exchange": "dlx"}))
    producers = set()
    for _ in range(2):
        shard.assign(Queue("/", "fleeting", 6, 0, durable=False, arguments={"x-dead-letter-exchange": "dlx"}))
        for queue, flags in ((1, 0), (6, 0), (6, 1)):
            shard.send(Publish((queue,), run_of(0, 1, flags)), consume(1, queue))
            [delivered] = shard.delivered(1)
            dead = reject(shard, delivered.first, delivered.first + 1, queue)
            producers.add((queue, dead.producer))
            shard.send(Release(1))
        shard.restart()
    assert len(producers) == 4
    assert all(producer > LETTER_PRODUCERS + 2**62 for _, producer in producers)


def test_now_and_then_it_is_told_which_numbers_never_come_again(shard: Shard) -> None:
    count = 4 * GONE_EVERY
    shard.send(Publish((1,), run_of(0, count)), consume(1))
    shard.delivered(count)
    held = {3, 7}
    told = [reject(shard, number, number + 1) for number in range(count) if number not in held]
    gone = [dead for dead in told if dead.gone]
    assert 3 <= len(gone) <= 4
    assert gone[0].gone[0] == (0, 3)
    assert gone[-1].gone == [(0, 3), (4, 7), (8, gone[-1].first)]


def test_a_number_told_as_gone_does_not_come_again_after_a_kill(shard: Shard) -> None:
    shard.send(Publish((1,), run_of(0, 2 * GONE_EVERY)), consume(1))
    shard.delivered(2 * GONE_EVERY)
    for number in range(1, 2 * GONE_EVERY - 1, 2):
        shard.send(Nack(1, [(number, number + 1)], False))
        shard.expect(DeadLetter)
    shard.send(Ack(1, [(0, 1)]), Nack(1, [(2 * GONE_EVERY - 1, 2 * GONE_EVERY)], False))
    assert shard.expect(DeadLetter).gone == [(0, 1)]
    shard.restart()
    shard.ask(consume(1))
    assert numbers(shard.delivered(2 * GONE_EVERY - 1)) == list(range(1, 2 * GONE_EVERY))
