"""What a flush waits for: all that was sent before it, and nothing that others send meanwhile."""

from shardmq.client.core.batching import PublishBatch
from shardmq.client.core.publishing.sent import SentBatches
from tests.client.core.harness import Waiter


def batch(count: int) -> PublishBatch:
    return "", "q", 0, count, b"", 0, 0, 0, 0


def sent() -> SentBatches:
    return SentBatches(lambda: False)


def test_a_flush_is_over_when_what_was_sent_before_it_is_confirmed_and_not_as_many_others() -> None:
    batches, flush = sent(), Waiter()
    before = batches.add(batch(2))
    batches.when_settled(None, flush)
    for _ in range(3):
        batches.add(batch(5)).settled(5, None)
    assert not flush.done()
    late = batches.add(batch(5))
    before.settled(2, None)
    assert flush.results == [None]
    late.settled(5, None)
    assert (batches.unconfirmed, batches.unconfirmed_batches) == (0, 0)


def test_a_second_flush_waits_for_the_firsts_batches_too_and_ends_in_whatever_order_they_are_confirmed() -> None:
    batches, first, second = sent(), Waiter(), Waiter()
    one = batches.add(batch(1))
    batches.when_settled(None, first)
    two = batches.add(batch(1))
    batches.when_settled(None, second)
    two.settled(1, None)
    assert not first.done()
    assert not second.done()
    one.settled(1, None)
    assert first.done()
    assert second.done()


def test_who_waits_for_room_waits_for_any_messages() -> None:
    batches, room = sent(), Waiter()
    batches.add(batch(5))
    batches.when_settled(3, room)
    batches.add(batch(2)).settled(2, None)
    assert not room.done()
    batches.add(batch(1)).settled(1, None)
    assert room.done()
