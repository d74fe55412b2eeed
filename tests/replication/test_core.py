"""What one replica does, step by step, and the pure parts of the core."""

import pytest

from shardmq.replication.core.effects import Commit, Rejected, Send, Swap
from shardmq.replication.core.events import Durable, GroupRead, Propose, Received, Tick
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Beat, BeatAnswer, Hello, Refused
from shardmq.replication.core.note import Note, common_point
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.state import Stored

GROUP = Group("one", 3, "a", ("a", "b"), ("a", "b"))


def follower() -> Replica:
    """Replica b, which has read that a leads term 3."""
    replica = Replica("b", Stored(Note("one", promised=3)), 100.0, 1)
    replica.step(100.0, Tick())
    replica.step(100.0, GroupRead(7, GROUP))
    return replica


@pytest.mark.parametrize(
    ("one", "one_last", "other", "other_last", "common"),
    [
        ((), 0, (), 0, 0),
        (((1, 1),), 9, ((1, 1),), 7, 7),
        (((1, 1), (2, 5)), 9, ((1, 1), (3, 8)), 9, 4),
        (((1, 1), (3, 8)), 9, ((1, 1), (2, 5)), 9, 4),
        (((4, 1),), 3, ((5, 1),), 3, 0),
        (((4, 90),), 99, ((5, 95),), 99, None),
    ],
)
def test_histories_part_where_their_terms_do(
    one: tuple[tuple[int, int], ...],
    one_last: int,
    other: tuple[tuple[int, int], ...],
    other_last: int,
    common: int | None,
) -> None:
    assert common_point(one, one_last, other, other_last) == common


def test_a_set_is_never_empty() -> None:
    with pytest.raises(ValueError, match="a is the last replica in sync"):
        Group("one", 3, "a", ("a",), ("a", "b")).shrunk("a")


def test_a_term_is_on_disk_before_its_beat_is_answered() -> None:
    replica = follower()
    effects = replica.step(100.1, Received("a", Beat(4, 55.0, 0, 0, 0.0)))
    assert [type(effect) for effect in effects] == [Commit]
    assert isinstance(effects[0], Commit)
    assert effects[0].note.promised == 4
    (hello,) = replica.step(100.2, Durable(effects[0].serial))
    assert isinstance(hello, Send)
    assert isinstance(hello.message, Hello)
    effects = replica.step(100.3, Received("a", Beat(4, 55.2, 0, 0, 0.0)))
    assert effects == [Send("a", BeatAnswer(4, 55.2))]


def test_a_lower_term_is_refused_by_name() -> None:
    assert follower().step(100.1, Received("c", Beat(2, 55.0, 0, 0, 0.0))) == [Send("c", Refused(3))]


def test_a_follower_campaigns_after_silence_and_leaves_the_primary_out() -> None:
    replica = follower()
    assert replica.step(101.4, Tick()) == []
    assert replica.step(102.0, Tick()) == [Swap(7, Group("one", 4, "b", ("b",), ("a", "b")))]
    assert replica.step(103.0, Tick()) == [], "one swap at a time"


def test_who_does_not_lead_says_who_does() -> None:
    assert follower().step(100.1, Propose(5, ())) == [Rejected(5, "b does not lead; a does")]
