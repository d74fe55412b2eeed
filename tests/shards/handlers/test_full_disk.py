"""What is committed joins its queues only while the disk has room: a full one would take the shard with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmq.bus.messages.base import Answer, Call, Inspect
from shardmq.bus.messages.shard import Consume, Delivered, Publish
from shardmq.bus.messages.transactions import FollowDecision, Seal
from shardmq.shards.handlers.decisions import ROLL_ROOM_BYTES
from shardmq.topology.entities import Queue
from tests.shards.driver import Shard, numbers, run_of

QUEUES = (Queue("/", "q", 1, 0), Queue("/", "other", 2, 0))


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    shard = Shard(tmp_path, disk_free_bytes_min=0)
    shard.assign(*QUEUES)
    yield shard
    shard.close()


def stage(shard: Shard, transaction: int, start: int) -> None:
    shard.redial()
    shard.publish(Publish((1, 2), run_of(start, 10), 71, 0, 0, transaction))
    shard.ask(Call(11, Seal(transaction, 71)))


def leave_free(shard: Shard, size: int) -> None:
    (shard.folder / "disk-free-bytes").write_text(str(size))


def staged(shard: Shard) -> list[int]:
    return [row["number"] for row in shard.ask(Call(13, Inspect()))["staged"]]


def test_what_is_committed_waits_for_room_and_all_else_goes_on(shard: Shard) -> None:
    stage(shard, 1, 0)
    stage(shard, 2, 100)
    leave_free(shard, ROLL_ROOM_BYTES - (1 << 20))
    shard.send(Call(21, FollowDecision(1, [71])))
    assert staged(shard) == [1, 2]
    assert shard.ask(Call(22, FollowDecision(2, []))) is None, "what is aborted makes room"
    shard.redial()
    shard.publish(Publish((1,), run_of(500, 3)))
    shard.ask(Call(6, Consume(51, 1, 0, True, 1 << 30)))
    assert numbers([shard.expect(Delivered)]) == [500, 501, 502]
    assert staged(shard) == [1]
    leave_free(shard, ROLL_ROOM_BYTES)
    assert numbers([shard.expect(Delivered)]) == list(range(10))
    assert staged(shard) == []


def test_what_waits_for_room_is_answered_when_it_has_joined(shard: Shard) -> None:
    stage(shard, 1, 0)
    leave_free(shard, 0)
    shard.send(Call(21, FollowDecision(1, [71])))
    assert staged(shard) == [1]
    shard.restart()
    shard.send(Call(21, FollowDecision(1, [71])))
    assert staged(shard) == [1]
    assert not [each for each in shard.inbox if isinstance(each, Answer)]
    leave_free(shard, ROLL_ROOM_BYTES)
    shard.expect(Answer, lambda answer: answer.request == 21)
    assert shard.queue(1)["ready"] == shard.queue(2)["ready"] == 10
