"""The last passes of a shard before another replica leads it."""

from collections.abc import Iterator

import pytest

from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.bus.poller import Poller
from shardmq.topology.entities import Queue
from tests.shards.driver import run_of
from tests.shards.inside import Inside, inside

TOO_FEW = "too few replicas of shard-0 are in sync"


@pytest.fixture
def shard() -> Iterator[Inside]:
    with inside() as shard:
        shard.assign(Queue("/", "q", 1, 0))
        yield shard


def hand_over_with_a_publish_under_way(shard: Inside, reason: str) -> None:
    shard.published += 1
    shard.send(Publish((1,), run_of(0, 1)))
    assert Poller([shard.listener.socket]).wait(60)
    shard.loop.hand_over(reason)
    assert shard.expect(Confirmed).upto == shard.published


def test_what_is_under_way_is_taken_in(shard: Inside) -> None:
    hand_over_with_a_publish_under_way(shard, "")
    assert not [message for message in shard.inbox if isinstance(message, PublishRefusal)]
    assert shard.ready() == 1


def test_what_is_under_way_is_refused_where_too_few_replicas_are_in_sync(shard: Inside) -> None:
    """The pass before has measured the room on the disk: what it leaves behind does not refuse anything."""
    shard.loop.shut(TOO_FEW)
    shard.turn()
    shard.store.space.look()
    hand_over_with_a_publish_under_way(shard, TOO_FEW)
    assert shard.expect(PublishRefusal).text == TOO_FEW
    assert shard.ready() == 0
