"""Groups of a shard: their members over a real link, and their cursors through crashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.link import LinkOpened
from shardmq.bus.messages.base import Call, Refusal
from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused
from shardmq.bus.messages.groups import (
    CommitOffset,
    DropGroup,
    GroupReading,
    GroupState,
    InspectPartition,
    PartitionState,
    ResetGroup,
)
from shardmq.bus.messages.shard import (
    Ack,
    AtomicCommit,
    Cancelled,
    Consume,
    Delivered,
    DropQueue,
    Nack,
    Publish,
    Release,
)
from shardmq.bus.messages.streams import Reading
from shardmq.errors import ReplyCode
from shardmq.limits import DELIVERY_WINDOW_BYTES
from shardmq.shards.handlers.partitions import groups
from shardmq.shards.topics import group_deliveries
from shardmq.topology.entities import Queue
from tests.shards.driver import numbers, run_of
from tests.shards.inside import Inside, inside

FIRST = Reading("first")
STREAM = Queue("/", "s", 1, 0, arguments={"x-queue-type": "stream"})


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Inside]:
    """A shard with a stream of ten messages."""
    with inside(tmp_path / "shard") as one:
        one.assign(STREAM)
        one.publish(Publish((1,), run_of(0, 10)))
        yield one


def reading(name: str = "g", epoch: int = 1, *, shared: bool = False, member: str = "m", **more: Any) -> GroupReading:
    return GroupReading(name, shared, epoch, member, more.pop("begin", FIRST), **more)


def join(shard: Inside, consumer: int, group: GroupReading, prefetch: int = 100, timeout_ms: int = 0) -> int:
    message = Consume(consumer, 1, prefetch, False, DELIVERY_WINDOW_BYTES, group=group, timeout_ms=timeout_ms)
    answer = shard.ask(Call(100 + consumer, message))
    assert isinstance(answer, int)
    return answer


def write(shard: Inside) -> None:
    """Have what was settled on disk."""
    shard.ask(Call(6, AtomicCommit([], [], [])))


def refused(shard: Inside, message: Any) -> str:
    shard.send(Call(77, message))
    refusal = shard.expect(Refusal, lambda one: one.request == 77)
    assert refusal.code in (404, 406, ReplyCode.RANGE_ERROR, ReplyCode.SYNTAX_ERROR, ReplyCode.NOT_ALLOWED), refusal
    return refusal.text


def got(shard: Inside, consumer: int, count: int) -> list[int]:
    """Bodies of the next messages that a consumer gets."""
    found: list[Delivered] = []
    while sum([one.batch.count for one in found]) < count:
        found.append(shard.expect(Delivered, lambda one: one.consumer == consumer))
    assert all(one.first == numbers([one])[0] for one in found), "an offset is not a message's place"
    return numbers(found)


def state(shard: Inside) -> PartitionState:
    answer = shard.ask(Call(55, InspectPartition(1)))
    assert isinstance(answer, list)
    groups = [GroupState(*each) for each in answer[5]]
    return PartitionState(*answer[:5], groups)


def offset(shard: Inside, name: str = "g") -> int:
    return next(group.offset for group in state(shard).groups if group.name == name)


def test_an_acknowledgement_is_the_commit(shard: Inside) -> None:
    assert join(shard, 1, reading()) == 0
    assert got(shard, 1, 10) == list(range(10))
    shard.send(Ack(1, [(0, 3), (5, 7)]))
    found = state(shard).groups[0]
    assert (found.offset, found.unacked, found.acked_above, found.member) == (3, 5, 2, "m")
    shard.send(Release(1))
    assert join(shard, 2, reading(epoch=2)) == 3
    assert got(shard, 2, 5) == [3, 4, 7, 8, 9]
    shard.send(Ack(2, [(3, 5), (7, 10)]))
    assert offset(shard) == 10


def test_a_group_goes_on_where_it_was_after_a_crash(shard: Inside) -> None:
    join(shard, 1, reading())
    got(shard, 1, 10)
    shard.send(Ack(1, [(0, 3), (5, 7)]))
    assert shard.ask(Call(5, CommitOffset(1, "other", 4, 0))) == 4
    write(shard)
    shard.restart()
    assert join(shard, 1, reading(epoch=2)) == 3
    first = shard.expect(Delivered)
    assert first.redelivered
    shard.inbox.insert(0, first)
    assert got(shard, 1, 5) == [3, 4, 7, 8, 9]
    assert offset(shard, "other") == 4


def test_a_newer_owner_fences_the_one_before(shard: Inside) -> None:
    join(shard, 1, reading(epoch=5, member="old"))
    got(shard, 1, 10)
    join(shard, 2, reading(epoch=6, member="new"))
    cancelled = shard.expect(Cancelled)
    assert cancelled.consumer == 1
    assert "member 'new' of group 'g'" in cancelled.text
    shard.send(Ack(1, [(0, 10)]))
    assert got(shard, 2, 10) == list(range(10))
    assert offset(shard) == 0
    assert "older than 6" in refused(shard, Consume(3, 1, 10, False, 1000, group=reading(epoch=5)))
    assert "member 'new'" in refused(shard, Consume(3, 1, 10, False, 1000, group=reading(epoch=6, member="third")))
    assert "nothing was committed" in refused(shard, CommitOffset(1, "g", 3, 5))
    shard.restart()
    assert "older than 6" in refused(shard, Consume(3, 1, 10, False, 1000, group=reading(epoch=5)))


def test_members_of_a_shared_group_get_each_message_once(shard: Inside) -> None:
    for consumer in (1, 2, 3):
        join(shard, consumer, reading(shared=True, member=f"m{consumer}"), prefetch=2)
    have = {consumer: got(shard, consumer, 2) for consumer in (1, 2, 3)}
    assert sorted(body for bodies in have.values() for body in bodies) == list(range(6))
    for consumer, bodies in have.items():
        shard.send(Ack(consumer, [(body, body + 1) for body in bodies]))
    more = {consumer: got(shard, consumer, 1) for consumer in (1, 2)}
    assert not {body for bodies in more.values() for body in bodies} & set(range(6))
    assert "kind shared" in refused(shard, Consume(9, 1, 10, False, 1000, group=reading()))


def test_what_is_returned_comes_again_and_late(shard: Inside) -> None:
    join(shard, 1, reading(shared=True))
    got(shard, 1, 10)
    shard.send(Nack(1, [(2, 3)], True), Nack(1, [(5, 6)], True, 50), Nack(1, [(8, 9)], False))
    assert got(shard, 1, 1) == [2]
    assert got(shard, 1, 1) == [5]
    shard.send(Ack(1, [(0, 8), (9, 10)]))
    assert offset(shard) == 10


def test_a_delay_holds_an_ordered_group_and_outlives_a_crash(shard: Inside) -> None:
    join(shard, 1, reading(), prefetch=1)
    assert got(shard, 1, 1) == [0]
    shard.send(Nack(1, [(0, 1)], True, 300))
    found = state(shard).groups[0]
    assert (found.delayed, found.offset) == (1, 0)
    write(shard)
    shard.restart()
    join(shard, 1, reading(epoch=2), prefetch=2)
    assert got(shard, 1, 2) == [0, 1]


def test_a_delivery_limit_drops_what_failed_too_often(shard: Inside) -> None:
    limited = reading(delivery_limit=1)
    join(shard, 1, limited, prefetch=1)
    assert got(shard, 1, 1) == [0]
    shard.send(Nack(1, [(0, 1)], True))
    again = shard.expect(Delivered)
    assert (again.first, again.redelivered, again.deliveries) == (0, True, 1)
    shard.send(Nack(1, [(0, 1)], True))
    assert got(shard, 1, 1) == [1]
    assert offset(shard) == 1
    assert "x-delivery-limit" in refused(shard, Consume(9, 1, 10, False, 1000, group=reading(epoch=2)))


def test_commits_name_what_they_were_refused_for(shard: Inside) -> None:
    assert shard.ask(Call(5, CommitOffset(1, "g", 4, 0))) == 4
    assert "is at offset 4" in refused(shard, CommitOffset(1, "g", 3, 0))
    assert "keeps offsets [0, 10)" in refused(shard, CommitOffset(1, "g", 11, 0))
    assert join(shard, 1, reading()) == 4
    assert "has 1 consumers" in refused(shard, CommitOffset(1, "g", 8, 0))
    assert got(shard, 1, 6) == list(range(4, 10))
    assert shard.ask(Call(5, CommitOffset(1, "g", 8, 1))) == 8
    shard.send(Ack(1, [(4, 6)]))
    found = state(shard).groups[0]
    assert (found.offset, found.unacked, found.consumers) == (8, 2, 1)


def test_a_reset_moves_consumers_and_forgets_what_they_hold(shard: Inside) -> None:
    join(shard, 1, reading(), prefetch=5)
    assert got(shard, 1, 5) == list(range(5))
    assert (shard.ask(Call(5, ResetGroup(1, "g", Reading("offset", 3), True))), offset(shard)) == ([0, 3], 0)
    assert shard.ask(Call(5, ResetGroup(1, "g", Reading("offset", 3), False))) == [0, 3]
    shard.send(Ack(1, [(0, 5)]))
    assert "epoch 1 is older than 2; nothing was committed" in refused(shard, CommitOffset(1, "g", 5, 1))
    assert join(shard, 2, reading(epoch=2), prefetch=5) == 3
    assert got(shard, 2, 5) == [3, 4, 5, 6, 7]
    assert offset(shard) == 3, "an acknowledgement from before the reset counted"
    shard.send(Ack(2, [(3, 8)]))
    assert got(shard, 2, 2) == [8, 9]
    assert offset(shard) == 8
    assert "keeps offsets [0, 10)" in refused(shard, ResetGroup(1, "g", Reading("offset", 11), True))
    assert "no group 'h'" in refused(shard, ResetGroup(1, "h", FIRST, True))


def test_a_group_is_forgotten_when_nobody_consumes(shard: Inside) -> None:
    join(shard, 1, reading())
    assert "has 1 consumers" in refused(shard, DropGroup(1, "g"))
    shard.send(Release(1))
    assert [shard.ask(Call(5, DropGroup(1, "g"))) for _ in range(2)] == [True, False]
    shard.restart()
    assert state(shard).groups == []


def test_a_dropped_partition_takes_its_groups_along(shard: Inside) -> None:
    join(shard, 1, reading())
    got(shard, 1, 10)
    shard.ask(Call(5, DropQueue(1)))
    assert shard.expect(Cancelled).consumer == 1
    shard.send(Ack(1, [(0, 5)]))
    shard.ask(Call(5, DropQueue(1)))
    shard.restart()
    shard.assign(STREAM)
    assert state(shard).groups == []


def test_groups_of_other_queues_are_refused(shard: Inside) -> None:
    shard.assign(Queue("/", "q", 2, 0))
    assert "is no stream" in refused(shard, InspectPartition(2))
    assert "is no stream" in refused(shard, Consume(9, 2, 10, False, 1000, group=reading()))


def test_a_message_held_for_too_long_comes_again(shard: Inside) -> None:
    join(shard, 1, reading(), prefetch=1, timeout_ms=50)
    assert got(shard, 1, 1) == [0]
    again = shard.expect(Delivered)
    assert (again.first, again.redelivered) == (0, True)


LETTERS = {"dead_letter_exchange": "dlx", "dead_letter_routing_key": "late"}


def arrived(dead: DeadLetter) -> DeadLetterAccepted:
    return DeadLetterAccepted(dead.queue, [(dead.first, dead.first + dead.batch.count)], dead.group)


def test_rejected_messages_are_the_groups_until_they_have_arrived(shard: Inside) -> None:
    join(shard, 1, reading(shared=True, **LETTERS))
    join(shard, 2, reading("h", shared=True, **LETTERS))
    got(shard, 1, 10)
    got(shard, 2, 10)
    shard.send(Ack(1, [(0, 2), (4, 10)]), Nack(1, [(2, 4)], False), Nack(2, [(2, 3)], False))
    letters = {dead.group: dead for dead in (shard.expect(DeadLetter), shard.expect(DeadLetter))}
    dead, other = letters["g"], letters["h"]
    assert (dead.queue, dead.first, dead.batch.count, dead.reason) == (1, 2, 2, "rejected")
    assert (dead.exchange, dead.routing_key) == ("dlx", "late")
    assert (other.first, other.batch.count) == (2, 1)
    assert dead.producer != other.producer, "one group's dead letter would be taken for another's"
    found = state(shard).groups[0]
    assert (found.offset, found.dying, found.unacked) == (2, 2, 2)
    shard.send(Release(1))
    shard.send(DeadLetterRefused(1, [(2, 3)], "g"), DeadLetterAccepted(1, [(3, 4)], "g"))
    again = shard.expect(DeadLetter)
    assert (again.group, again.first, again.producer) == ("g", 2, dead.producer)
    shard.send(arrived(again))
    found = state(shard).groups[0]
    assert (found.offset, found.dying, found.unacked) == (10, 0, 0)


def test_dead_letters_that_have_not_arrived_come_again_after_a_crash(shard: Inside) -> None:
    limited = reading(delivery_limit=0, **LETTERS)
    join(shard, 1, limited)
    got(shard, 1, 10)
    shard.send(Ack(1, [(1, 10)]), Nack(1, [(0, 1)], True))
    dead = shard.expect(DeadLetter)
    assert (dead.reason, dead.deliveries) == ("delivery_limit", 1)
    write(shard)
    shard.restart()
    join(shard, 1, reading(epoch=2, delivery_limit=0, **LETTERS))
    again = shard.expect(DeadLetter)
    assert (again.first, again.producer, again.deliveries) == (0, dead.producer, 1)
    shard.send(arrived(again))
    assert offset(shard) == 10


def test_many_dead_letters_hold_nobody_up_after_a_crash(shard: Inside) -> None:
    limited = {"delivery_limit": 0, **LETTERS}
    join(shard, 1, reading(**limited))
    got(shard, 1, 10)
    shard.send(Ack(1, [(place, place + 1) for place in (1, 3, 5)]))
    shard.send(Nack(1, [(place, place + 1) for place in (0, 2, 4, 6)], True))
    write(shard)
    shard.restart()
    join(shard, 1, reading(epoch=2, **limited))
    assert got(shard, 1, 3) == [7, 8, 9]
    assert state(shard).groups[0].dying == 4


def test_what_died_before_a_reset_may_die_again(shard: Inside) -> None:
    join(shard, 1, reading(**LETTERS), prefetch=1)
    assert got(shard, 1, 1) == [0]
    shard.send(Nack(1, [(0, 1)], False))
    dead = shard.expect(DeadLetter)
    assert got(shard, 1, 1) == [1]
    shard.ask(Call(5, ResetGroup(1, "g", FIRST, False)))
    shard.send(arrived(dead), Ack(1, [(1, 2)]))
    join(shard, 2, reading(epoch=2, **LETTERS), prefetch=1)
    assert got(shard, 2, 1) == [0]
    shard.send(Nack(2, [(0, 1)], False))
    assert shard.expect(DeadLetter).producer != dead.producer


def test_after_a_clean_stop_only_what_was_delivered_is_called_redelivered(shard: Inside) -> None:
    join(shard, 1, reading(), prefetch=5)
    assert got(shard, 1, 5) == list(range(5))
    shard.loop.stop()
    shard.restart()
    join(shard, 1, reading(epoch=2))
    found = [shard.expect(Delivered), shard.expect(Delivered)]
    assert [(one.first, one.batch.count, one.redelivered) for one in found] == [(0, 5, True), (5, 5, False)]


def test_a_member_whose_link_broke_goes_on_in_its_epoch(shard: Inside) -> None:
    join(shard, 1, reading(epoch=4))
    assert got(shard, 1, 10) == list(range(10))
    shard.send(Ack(1, [(0, 4)]))
    shard.ask(Call(6, AtomicCommit([], [], [])))
    shard.dialer._lose("for the test")
    shard.inbox.clear()
    shard.expect(LinkOpened)
    assert join(shard, 1, reading(epoch=4)) == 4
    assert got(shard, 1, 6) == list(range(4, 10))


def test_a_partition_has_a_limit_of_groups(shard: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    for name in ("g", "h"):
        shard.ask(Call(5, CommitOffset(1, name, 4, 0)))
    assert "has 2 groups, the most there may be" in refused(shard, CommitOffset(1, "i", 4, 0))
    assert "has 2 groups" in refused(shard, Consume(9, 1, 10, False, 1000, group=reading("i")))
    assert shard.ask(Call(5, CommitOffset(1, "g", 5, 0))) == 5


@pytest.mark.parametrize("name", ["", "g" * 256, "\N{SNOWMAN}" * 86])
def test_names_of_groups_have_a_length(shard: Inside, name: str) -> None:
    assert "has 1 to 255 bytes" in refused(shard, CommitOffset(1, name, 4, 0))
    assert "has 1 to 255 bytes" in refused(shard, Consume(9, 1, 10, False, 1000, group=reading(name)))


def test_a_name_may_be_as_long_as_any_other(shard: Inside) -> None:
    name = "\N{SNOWMAN}" * 85
    shard.ask(Call(5, CommitOffset(1, name, 4, 0)))
    shard.restart()
    assert offset(shard, name) == 4


def test_a_group_with_too_many_gaps_waits_until_some_are_closed(shard: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_deliveries, "RANGES_MAX", 3)
    shard.publish(Publish((1,), run_of(10, 20)))
    join(shard, 1, reading(shared=True), prefetch=4)
    for count, first in ((4, 0), (2, 4)):
        assert got(shard, 1, count) == list(range(first, first + count))
        shard.send(Ack(1, [(place, place + 1) for place in range(first + 1, first + count, 2)]))
    found = state(shard).groups[0]
    assert (found.offset, found.unacked, found.acked_above) == (0, 3, 3)
    shard.send(Ack(1, [(0, 1), (2, 3)]))
    assert got(shard, 1, 3) == [6, 7, 8]


def test_a_group_goes_on_behind_what_retention_dropped_and_says_how_much_that_was(shard: Inside) -> None:
    shard.assign(Queue("/", "short", 3, 0, arguments={"x-queue-type": "stream", "x-max-length-bytes": 1}))
    asleep, slow = reading("asleep"), reading("slow")
    join_short = Consume(8, 3, 2, False, DELIVERY_WINDOW_BYTES, group=slow)
    shard.publish(Publish((3,), run_of(0, 4)))
    shard.ask(Call(5, join_short))
    shard.ask(Call(6, Consume(7, 3, 2, False, DELIVERY_WINDOW_BYTES, group=asleep)))
    assert got(shard, 8, 2) == [0, 1]
    shard.send(Release(7))
    for first in (4, 8):
        shard.publish(Publish((3,), run_of(first, 4)))
    found = {each[0]: each for each in shard.ask(Call(9, InspectPartition(3)))[5]}
    assert found["asleep"][2] == 8
    assert found["asleep"][10] == 8
    shard.send(Ack(8, [(0, 2)]))
    assert got(shard, 8, 2) == [8, 9]
    found = {each[0]: each for each in shard.ask(Call(9, InspectPartition(3)))[5]}
    assert (found["slow"][2], found["slow"][10]) == (8, 6)
