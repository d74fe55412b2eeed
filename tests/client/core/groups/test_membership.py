"""A consumer of a group without a connection: what it hands out, settles and drops as its partitions change."""

import re
from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from shardmq.client.api.message import Delivery, Message
from shardmq.client.core.groups.changes import Assigned, Revoked
from shardmq.client.core.groups.membership import Membership
from shardmq.client.core.groups.nacked import PLACES_MIN, RANGES_MAX
from shardmq.errors import ChannelError, InvalidRequest, PreconditionFailed
from shardmq.message.record import pack_many
from shardmq.protocol.native.operations.basic import BasicDeliver


class Heard:
    """The settler of a channel: what the broker would hear."""

    def __init__(self) -> None:
        self.acked: list[tuple[int, int]] = []
        self.nacked: list[tuple[int, int]] = []
        self.taken_bytes = 0

    def ack_one(self, tag: int) -> None:
        self.ack(tag, tag)

    def ack(self, first: int, last: int) -> None:
        self.acked.append((first, last))

    def nack(self, first: int, last: int, requeue: bool, delay_ms: int = 0) -> None:  # noqa: ARG002
        self.nacked.append((first, last))

    def renew(self, first: int, last: int) -> None:
        """Nothing is late here."""

    def taken(self, delivery: Delivery) -> None:
        self.taken_bytes += delivery.size


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def member(heard: Heard) -> Membership:
    return Membership(heard, nullcontext(), lambda: None)


def delivery(tag: int, count: int, partition: int, offset: int, heard: Heard) -> Delivery:
    records = pack_many([b"%d.%d" % (partition, number) for number in range(offset, offset + count)])
    frame = BasicDeliver(1, "c", tag, False, "", "", 0, 0, 0, 0, count, records, 0, offset, partition)
    return Delivery(frame, heard, "orders")


def bodies(member: Membership) -> list[bytes]:
    found = []
    while member.change() is None and (message := member.message()) is not None:
        found.append(message.body)
    return found


def test_messages_come_in_order_and_tell_where_it_is(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 5), (2, 7)])
    assert isinstance(member.change(), Assigned)
    assert member.offsets == {0: 5, 2: 7}
    member.deliver(delivery(1, 2, 0, 5, heard))
    member.deliver(delivery(3, 1, 2, 7, heard))
    assert bodies(member) == [b"0.5", b"0.6", b"2.7"]
    assert member.offsets == {0: 7, 2: 8}
    assert member.message() is None


def test_what_was_handed_out_is_acked_once_whoever_does_it(member: Membership, heard: Heard) -> None:
    member.deliver(delivery(1, 4, 0, 0, heard))
    messages = [message for _ in range(4) if (message := member.message()) is not None]
    messages[1].ack()
    messages[2].nack(delay_ms=50)
    messages[1].nack()
    assert (heard.acked, heard.nacked) == ([(2, 2)], [(3, 3)])
    member.handed_out.ack_all()
    assert heard.acked == [(2, 2), (1, 1), (4, 4)]
    member.handed_out.ack_all()
    messages[3].ack()
    assert len(heard.acked) == 3


def test_messages_of_a_partition_that_is_revoked_are_not_handed_out(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (1, 0)])
    member.deliver(delivery(1, 3, 0, 0, heard))
    member.deliver(delivery(4, 2, 1, 0, heard))
    assert isinstance(member.change(), Assigned)
    assert member.message() is not None
    member.deliver(delivery(6, 2, 0, 3, heard))
    member.revoked([0], is_lost=False)
    change = member.change()
    assert isinstance(change, Revoked)
    assert (change.partitions, change.is_lost) == ([0], False)
    assert bodies(member) == [b"1.0", b"1.1"]
    assert member.offsets == {1: 2}


def test_a_partition_that_comes_back_is_read_on(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    member.deliver(delivery(1, 3, 0, 0, heard))
    member.revoked([0], is_lost=True)
    member.assigned([(0, 1)])
    member.deliver(delivery(4, 2, 0, 1, heard))
    kinds = [type(member.change()) for _ in range(3)]
    assert kinds == [Assigned, Revoked, Assigned]
    assert bodies(member) == [b"0.1", b"0.2"]
    assert heard.taken_bytes == len(delivery(1, 3, 0, 0, heard).frame.records) + len(
        delivery(4, 2, 0, 1, heard).frame.records
    )


def test_a_loss_takes_everything(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (3, 0)])
    member.deliver(delivery(1, 3, 0, 0, heard))
    assert isinstance(member.change(), Assigned)
    assert member.message() is not None
    member.broken()
    change = member.change()
    assert isinstance(change, Revoked)
    assert (change.partitions, change.is_lost) == ([0, 3], True)
    member.handed_out.ack_all()
    assert (bodies(member), heard.acked, member.offsets) == ([], [], {})


def test_the_end_comes_behind_what_was_delivered(member: Membership, heard: Heard) -> None:
    member.deliver(delivery(1, 2, 0, 0, heard))
    member.end(ChannelError("gone"))
    assert bodies(member) == [b"0.0", b"0.1"]
    assert member.message() is None
    assert member.ended is not None
    assert str(member.ended.error) == "gone"


def test_what_is_left_at_the_end_is_given_back(member: Membership, heard: Heard) -> None:
    member.deliver(delivery(1, 3, 0, 0, heard))
    member.deliver(delivery(4, 2, 0, 3, heard))
    assert member.message() is not None
    assert (member.handed_out.take_all(), sorted(member.unseen())) == ([(1, 1)], [(2, 2), (3, 3), (4, 5)])
    assert (member.unseen(), bodies(member)) == ([], [])


def test_batches_are_acked_whole(member: Membership, heard: Heard) -> None:
    member.deliver(delivery(1, 3, 0, 0, heard))
    batch = member.batch()
    assert batch is not None
    assert (len(batch), batch.partition, batch.offset) == (3, 0, 0)
    member.handed_out.ack_all()
    assert heard.acked == [(1, 3)]
    assert member.batch() is None


def test_messages_and_batches_may_be_taken_in_turn(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    assert isinstance(member.change(), Assigned)
    member.deliver(delivery(1, 5, 0, 0, heard))
    member.deliver(delivery(6, 2, 0, 5, heard))
    messages = [member.message(), member.message()]
    assert [message.body for message in messages if message is not None] == [b"0.0", b"0.1"]
    rest = member.batch()
    assert rest is not None
    assert (rest.bodies, rest.offset, rest.delivery_tag) == ([b"0.2", b"0.3", b"0.4"], 2, 3)
    assert member.offsets == {0: 5}
    assert bodies(member) == [b"0.5", b"0.6"]
    member.handed_out.ack_all()
    assert heard.acked == [(1, 7)]


def test_copies_of_what_a_transaction_commits_are_committed_with_it(member: Membership, heard: Heard) -> None:
    member.is_transactional = True
    member.assigned([(0, 0)])
    assert isinstance(member.change(), Assigned)
    member.deliver(delivery(1, 4, 0, 0, heard))
    assert len(bodies(member)) == 4
    member.committed({0: 2}, [(1, 2)])
    again = delivery(5, 6, 0, 0, heard)
    again.frame = replace(again.frame, redelivered=True)
    member.deliver(again)
    assert bodies(member) == [b"0.4", b"0.5"]
    assert heard.acked == [(1, 2), (5, 6)]
    member.committed({0: 6}, member.handed_out.held())
    assert heard.acked[2:] == [(3, 4), (7, 10)]


def test_messages_that_come_twice_before_the_first_transaction_are_noticed(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    assert isinstance(member.change(), Assigned)
    member.deliver(delivery(1, 4, 0, 0, heard))
    assert len(bodies(member)) == 4
    again = delivery(5, 4, 0, 0, heard)
    again.frame = replace(again.frame, redelivered=True)
    member.deliver(again)
    assert len(bodies(member)) == 4
    assert member.repeated == {0}


def test_what_was_read_of_a_partition_that_is_taken_is_not_committed(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (1, 0)])
    assert isinstance(member.change(), Assigned)
    member.deliver(delivery(1, 2, 0, 0, heard))
    assert len(bodies(member)) == 2
    member.revoked([1], is_lost=True)
    assert not member.has_lost()
    member.revoked([0], is_lost=True)
    assert member.has_lost()
    member.abandon([0, 1])
    assert (member.read, member.abandoned) == ({}, {0})


def test_what_was_on_its_way_as_a_partition_was_taken_is_not_handed_out(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (1, 0)])
    member.deliver(delivery(1, 2, 0, 0, heard))
    member.revoked([0], is_lost=False)
    assert isinstance(member.change(), Assigned)
    assert isinstance(member.change(), Revoked)
    late = delivery(3, 2, 0, 2, heard)
    member.deliver(late)
    member.deliver(delivery(5, 1, 1, 0, heard))
    assert bodies(member) == [b"1.0"]
    assert member.read == {1: 1}
    assert heard.taken_bytes >= late.size


def test_what_was_on_its_way_is_dropped_where_the_partition_comes_back(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    member.revoked([0], is_lost=True)
    assert isinstance(member.change(), Assigned)
    assert isinstance(member.change(), Revoked)
    member.deliver(delivery(1, 2, 0, 5, heard))
    member.assigned([(0, 2)])
    member.deliver(delivery(3, 2, 0, 2, heard))
    assert isinstance(member.change(), Assigned)
    assert bodies(member) == [b"0.2", b"0.3"]
    assert member.read == {0: 4}


def test_messages_of_a_partition_that_it_was_never_told_of_cannot_be_committed(
    member: Membership, heard: Heard
) -> None:
    member.deliver(delivery(1, 1, 3, 0, heard))
    assert bodies(member) == [b"3.0"]
    assert (member.read, member.abandoned) == ({}, {3})


def taken(member: Membership, *deliveries: Delivery) -> list[Message]:
    """The messages of some deliveries, in the program's hands."""
    for each in deliveries:
        member.deliver(each)
    while member.change() is not None:
        pass
    return list(iter(member.message, None))


def is_behind(member: Membership, offsets: dict[int, int]) -> list[int]:
    """The partitions of which a commit says that the group is behind."""
    try:
        member.check_committed("orders", "g", offsets)
    except PreconditionFailed as behind:
        return [
            int(number) for number in re.findall(r"\d+", behind.text.partition("partitions [")[2].partition("]")[0])
        ]
    return []


def test_a_nack_that_is_refused_leaves_the_message_to_be_settled(member: Membership, heard: Heard) -> None:
    [message] = taken(member, delivery(1, 1, 0, 0, heard))
    with pytest.raises(TypeError):
        message.nack(delay_ms=0.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="0 to"):
        message.nack(delay_ms=10**12)
    with pytest.raises(InvalidRequest, match="without requeue"):
        message.nack(requeue=False, delay_ms=5)
    message.ack()
    assert (heard.acked, heard.nacked) == ([(1, 1)], [])


def test_a_group_waits_for_what_was_nacked_and_for_nothing_else(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (1, 0)])
    messages = taken(member, delivery(1, 6, 0, 0, heard), delivery(7, 4, 1, 0, heard), delivery(11, 4, 0, 6, heard))
    assert is_behind(member, {0: 10, 1: 4}) == []
    assert is_behind(member, {0: 9, 1: 3}) == [0, 1]
    messages[2].nack()
    messages[12].nack()  # offset 8 of partition 0
    assert is_behind(member, {0: 2, 1: 4}) == []
    assert is_behind(member, {0: 1, 1: 3}) == [0, 1]
    assert is_behind(member, {0: 8, 1: 4}) == []
    assert is_behind(member, {0: 5, 1: 4}) == [0], "it waited at 2, which it has passed, and waits at 8 now"
    assert is_behind(member, {0: 9, 1: 4}) == [0], "it has passed all that was nacked"


def test_a_group_waits_no_more_for_what_came_again_or_was_begun_anew(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0), (1, 0)])
    messages = taken(member, delivery(1, 4, 0, 0, heard), delivery(5, 4, 1, 0, heard))
    messages[1].nack(requeue=False)
    messages[5].nack()
    again = delivery(9, 1, 0, 1, heard)
    again.frame = replace(again.frame, redelivered=True)
    taken(member, again, delivery(10, 1, 0, 4, heard))
    assert is_behind(member, {0: 1, 1: 1}) == [0]
    member.revoked([1], is_lost=False)
    assert isinstance(member.change(), Revoked)
    member.abandon([1])
    member.assigned([(1, 0)])
    taken(member, delivery(11, 4, 1, 0, heard))
    assert is_behind(member, {0: 5, 1: 1}) == [1]


def test_where_messages_lie_is_known_until_they_are_settled_and_no_longer(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    total = 5 * PLACES_MIN
    messages = taken(member, *[delivery(number + 1, 1, 0, number, heard) for number in range(2)])
    for number in range(2, total):
        taken(member, delivery(number + 1, 1, 0, number, heard))[0].ack()
    assert len(member.handed_out._nacked._places) <= PLACES_MIN + 2
    messages[0].ack()
    messages[1].nack()
    assert is_behind(member, {0: 1}) == []
    assert is_behind(member, {0: 2}) == [0]


def test_of_many_ranges_that_were_nacked_all_between_them_counts_as_nacked(member: Membership, heard: Heard) -> None:
    member.assigned([(0, 0)])
    total = 2 * (RANGES_MAX + 2)
    for message in taken(member, delivery(1, total, 0, 0, heard))[1::2]:
        message.nack()
    assert is_behind(member, {0: 0}) == [0]
    assert is_behind(member, {0: 1}) == is_behind(member, {0: 10}) == is_behind(member, {0: total}) == []


def test_a_commit_is_about_partitions_of_which_something_was_handed_out_since_the_last(
    member: Membership, heard: Heard
) -> None:
    member.assigned([(0, 0), (1, 0), (2, 0)])
    taken(member, delivery(1, 2, 0, 0, heard), delivery(3, 2, 1, 0, heard))
    assert member.uncommitted(is_shared=False) == [0, 1]
    assert is_behind(member, {0: 2, 1: 0}) == [1]
    member.note_commit([0, 1])
    assert member.uncommitted(is_shared=False) == []
    assert is_behind(member, {}) == [], "nothing is new"
    assert len(taken(member, delivery(5, 1, 1, 2, heard))) == 1
    assert member.uncommitted(is_shared=False) == [1]
    member.revoked([1], is_lost=True)
    assert isinstance(member.change(), Revoked)
    member.abandon([1])
    assert member.uncommitted(is_shared=False) == []


def test_the_rest_of_a_delivery_is_committed_by_the_next_commit(member: Membership, heard: Heard) -> None:
    member.assigned([(3, 7)])
    assert isinstance(member.change(), Assigned)
    member.deliver(delivery(1, 4, 3, 7, heard))
    assert member.message() is not None
    member.note_commit(member.uncommitted(is_shared=False))
    assert member.uncommitted(is_shared=False) == [3]
    batch = member.batch()
    assert batch is not None
    assert len(batch) == 3
    member.note_commit([3])
    assert member.uncommitted(is_shared=False) == []
    again = delivery(5, 1, 3, 9, heard)
    again.frame = replace(again.frame, redelivered=True)
    taken(member, again)
    assert member.uncommitted(is_shared=False) == [3]


def test_a_member_of_a_shared_group_is_told_of_no_partitions_and_knows_whose_messages_it_had(
    member: Membership, heard: Heard
) -> None:
    taken(member, delivery(1, 2, 5, 0, heard), delivery(3, 1, 0, 9, heard))
    assert member.uncommitted(is_shared=True) == [0, 5]
    member.note_commit([0, 5])
    assert member.uncommitted(is_shared=True) == []
