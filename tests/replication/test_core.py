"""What one replica does, step by step, and the pure parts of the core."""

import pytest

from shardmq.replication.core.effects import Commit, Leading, ReadKeys, ReadRange, Rejected, Send, Swap
from shardmq.replication.core.events import Durable, GroupRead, GroupSeen, Propose, RangeRead, Received, Tick
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Beat, BeatAnswer, Handover, Hello, Join, Range, RangeAck, Refused
from shardmq.replication.core.note import BEGINNING, Leads, Log, Note, common_point
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.state import Stored
from shardmq.replication.core.timing import REST_SHARE

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
    assert common_point(Log(one, one_last), Log(other, other_last)) == common


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (((2, 70), (3, 77)), ((2, 70), (3, 77)), 9),
        (((2, 70), (3, 77)), ((2, 70), (3, 78)), 7),
        (((2, 70), (3, 77)), ((2, 71), (3, 77)), 9),
        (((2, 70), (3, 77)), ((2, 71), (3, 78)), 4),
        (((2, 70), (3, 77)), (), 9),
        (((3, 77),), ((2, 71), (3, 78)), 7),
    ],
)
def test_histories_part_where_one_term_had_two_primaries(one: Leads, other: Leads, common: int) -> None:
    history = ((1, 1), (2, 5), (3, 8))
    assert common_point(Log(history, 9, one), Log(history, 9, other)) == common


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


def test_a_new_primary_that_was_heard_has_time_to_be_heard_again() -> None:
    replica = follower()
    (promise,) = replica.step(101.4, Received("c", Beat(4, 55.0, 0, 0, 0.0)))
    assert isinstance(promise, Commit)
    replica.step(101.4, Durable(promise.serial))
    assert replica.step(101.5, GroupSeen(8, Group("one", 4, "c", ("b", "c"), ("a", "b", "c")))) == []
    assert replica.step(102.8, Tick()) == [], "a new campaign would end the term that just began"
    assert [type(effect) for effect in replica.step(103.4, Tick())] == [Swap]


def test_who_is_handed_the_lead_begins_with_its_promise_on_disk_and_has_heard_what_followers_said() -> None:
    replica = follower()
    (promise,) = replica.step(100.1, GroupSeen(8, Group("one", 4, "b", ("a", "b"), ("a", "b"))))
    assert isinstance(promise, Commit)
    assert replica.step(100.1, Received("a", Hello(4, 1, "one", 0, 0, (), (), None))) == []
    assert replica.step(100.1, Received("a", Handover(4, ""))) == []
    effects = replica.step(100.1, Durable(promise.serial))
    assert [type(effect) for effect in effects] == [Leading, Commit, Send, ReadKeys], "a's Hello is answered behind it"


def test_who_does_not_lead_says_who_does() -> None:
    assert follower().step(100.1, Propose(5, ())) == [Rejected(5, "b does not lead; a does")]


def test_a_range_that_does_not_begin_where_the_join_is_ends_the_stream() -> None:
    replica = follower()
    (said, _) = replica.step(100.1, Received("a", Beat(3, 55.0, 0, 0, 0.0)))[::-1]
    assert isinstance(said, Send)
    assert isinstance(said.message, Hello)
    stream = said.message.stream
    (commit,) = replica.step(100.2, Received("a", Join(3, stream, "one", 9, 3, 0.0, ((3, 1),))))
    assert isinstance(commit, Commit)
    (commit,) = replica.step(100.3, Received("a", Range(3, stream, BEGINNING, (2, b"k"), ((1, b"k", b"v"),))))
    assert isinstance(commit, Commit)
    assert (commit.note.copied, commit.clear) == ((2, b"k"), (BEGINNING, (2, b"k")))
    assert replica.step(100.4, Received("a", Range(3, stream, (2, b"l"), (4, b"k"), ((2, b"l", b"v"),)))) == []
    assert replica.step(100.5, Received("a", Range(3, stream, (2, b"k"), None, ()))) == [], "of a stream that was left"


def joined_primary() -> tuple[Replica, int]:
    """Replica a, which leads alone and has been asked for everything by b; and its first read."""
    replica = Replica("a", Stored(Note("one", promised=3)), 100.0, 1)
    replica.step(100.0, Tick())
    replica.step(100.0, GroupRead(7, Group("one", 3, "b", ("a", "b"), ("a", "b"))))
    (promise,) = replica.step(100.1, GroupSeen(8, Group("one", 4, "a", ("a",), ("a", "b"))))
    assert isinstance(promise, Commit)
    replica.step(100.1, Durable(promise.serial))
    replica.step(102.0, Tick())
    effects = replica.step(102.0, Received("b", Hello(4, 1, "", 0, 0, (), (), None)))
    assert [type(effect) for effect in effects] == [Send, ReadRange]
    assert isinstance(effects[1], ReadRange)
    return replica, effects[1].request


@pytest.mark.parametrize("publishes", [False, True])
def test_a_join_rests_after_each_step_where_somebody_publishes_meanwhile(publishes: bool) -> None:
    replica, request = joined_primary()
    replica.step(102.01, RangeRead(request, (), (1, b"k"), 9))
    if publishes:
        replica.step(102.02, Propose(5, ()))
    effects = replica.step(102.03, Received("b", RangeAck(4, 1, (1, b"k"))))
    assert [type(effect) for effect in effects] == ([] if publishes else [ReadRange])
    if publishes:
        goes_on_at = 102.03 + 0.03 * REST_SHARE  # before the next heartbeat
        assert replica.wake == pytest.approx(goes_on_at)
        assert [type(effect) for effect in replica.step(goes_on_at - 0.01, Tick())] == []
        assert [type(effect) for effect in replica.step(goes_on_at, Tick())] == [ReadRange]
