"""What a replica makes of messages and news of other terms than its own, step by step.

Acknowledgements quote a stream, which followers draw anew with each promise: those of other terms are of other streams.
"""

import pytest

from shardmq.replication.core.effects import Commit, Deposed, EtcdBehind, Leading, ReadKeys, Released, Send, Swap
from shardmq.replication.core.events import Durable, GroupRead, GroupSeen, KeysRead, Received, Tick
from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Ack, Beat, BeatAnswer, Handover, Hello, Message, Refused, Rejoin
from shardmq.replication.core.note import Note
from shardmq.replication.core.replica import Replica
from shardmq.replication.core.state import Stored

BOTH = ("a", "b")
EMPTY = Stored(Note("one", promised=3))
ELECTED = GroupSeen(8, Group("one", 4, "b", BOTH, BOTH))


def follower(stored: Stored = EMPTY) -> Replica:
    """Replica b, which has read that a leads term 3, and has heard it."""
    replica = Replica("b", stored, 100.0, 1)
    replica.step(100.0, Tick())
    replica.step(100.0, GroupRead(7, Group("one", 3, "a", BOTH, BOTH)))
    replica.step(100.0, Received("a", Beat(3, 55.0, 0, 0, 0.0)))
    return replica


def primary() -> Replica:
    """Replica b, to which a handed term 4 over at 100.1, and which may answer until 101.1 as a has all it wrote."""
    replica = follower()
    (promise,) = replica.step(100.1, ELECTED)
    assert isinstance(promise, Commit)
    replica.step(100.1, Received("a", hello(4)))
    replica.step(100.1, Received("a", Handover(4, "")))
    effects = replica.step(100.1, Durable(promise.serial))
    [record] = [effect for effect in effects if isinstance(effect, Commit)]
    [read] = [effect for effect in effects if isinstance(effect, ReadKeys)]
    replica.step(100.1, KeysRead(read.request, ()))
    replica.step(100.1, Durable(record.serial))
    assert Released(1) in replica.step(100.1, Received("a", Ack(4, 9, 1, True)))
    replica.step(100.2, Received("a", BeatAnswer(4, 100.1)))
    assert replica.may_answer(101.0)
    assert not replica.may_answer(101.2)
    return replica


def hello(term: int) -> Hello:
    return Hello(term, 9, "one", 0, 0, (), (), None)


def test_a_refusal_of_a_lower_term_takes_no_promise_back() -> None:
    assert follower().step(100.1, Received("c", Refused(2))) == []


def test_who_promised_a_term_leads_no_lower_one_that_etcd_tells_of_late() -> None:
    replica = follower()
    replica.step(100.1, Received("a", Beat(5, 55.0, 0, 0, 0.0)))
    assert replica.step(100.2, ELECTED) == []
    assert not replica.leads


@pytest.mark.parametrize("is_before", [True, False])
def test_the_handover_of_another_term_shortens_no_wait_for_a_lease(is_before: bool) -> None:
    replica = follower()
    late = Received("a", Handover(3, ""))
    if is_before:
        replica.step(100.1, late)
    [promise] = [effect for effect in replica.step(100.1, ELECTED) if isinstance(effect, Commit)]
    if not is_before:
        replica.step(100.1, late)
    assert replica.step(100.1, Durable(promise.serial)) == []
    assert Leading(4, True) in replica.step(101.6, Tick()), "the lease that a was granted has ended"


def test_a_new_primary_says_nothing_before_its_promise_is_on_disk() -> None:
    replica = follower()
    (promise,) = replica.step(100.1, ELECTED)
    assert isinstance(promise, Commit)
    assert replica.step(100.4, Tick()) == []
    replica.step(100.5, Durable(promise.serial))
    (beat,) = replica.step(100.5, Tick())
    assert isinstance(beat, Send)
    assert isinstance(beat.message, Beat)


def test_the_answer_to_a_beat_of_another_term_grants_no_lease() -> None:
    """A host that was started anew counts its time from zero: what it said before is of a time to come."""
    replica = primary()
    assert replica.step(100.3, Received("a", BeatAnswer(3, 9999.0))) == []
    assert not replica.may_answer(101.2)


def test_what_a_follower_held_in_another_term_says_nothing_of_now() -> None:
    replica = primary()
    assert replica.step(100.3, Received("a", hello(3))) == []


@pytest.mark.parametrize("message", [Beat(5, 55.0, 0, 0, 0.0), Refused(5)])
def test_a_primary_that_hears_of_a_higher_term_leads_no_more(message: Message) -> None:
    replica = primary()
    assert Deposed(4) in replica.step(100.3, Received("a", message))
    assert not replica.may_answer(100.3)


def test_a_primary_refuses_a_lower_term_by_name() -> None:
    (refused,) = primary().step(100.3, Received("a", Beat(3, 55.0, 0, 0, 0.0)))
    assert refused == Send("a", Refused(4))


@pytest.mark.parametrize("released", [2, 3])
def test_who_leads_says_whether_it_knew_all_that_it_holds_to_be_released(released: int) -> None:
    note = Note("one", promised=3, term=3, index=3, released=released, history=((3, 1),))
    replica = follower(Stored(note, ((3, ((0, b"key"),)),)[released - 2 :]))
    [promise] = [effect for effect in replica.step(100.1, ELECTED) if isinstance(effect, Commit)]
    replica.step(100.1, Durable(promise.serial))
    assert Leading(4, released == 3) in replica.step(101.6, Tick())


def test_who_leads_is_not_sure_of_what_too_few_released() -> None:
    note = Note("one", promised=3, term=3, index=3, released=3, history=((3, 1),))
    replica = follower(Stored(note))
    few = GroupSeen(8, Group("one", 4, "b", BOTH, ("a", "b", "c"), 3))
    [promise] = [effect for effect in replica.step(100.1, few) if isinstance(effect, Commit)]
    replica.step(100.1, Durable(promise.serial))
    assert Leading(4, False) in replica.step(101.6, Tick())


def test_who_promised_a_term_that_a_restored_etcd_has_forgotten_says_so_and_campaigns_for_a_later_one() -> None:
    note = Note("one", promised=7, term=7, index=9, released=9, history=((3, 1), (7, 5)))
    replica = Replica("b", Stored(note), 100.0, 1)
    replica.step(100.0, Tick())
    forgotten = Group("one", 3, "a", BOTH, BOTH)
    assert EtcdBehind(3, 7) in replica.step(100.0, GroupRead(7, forgotten))
    assert replica.step(102.0, Tick()) == [Swap(7, Group("one", 8, "b", ("b",), BOTH))]


def test_who_holds_records_of_a_term_does_not_lead_it_again() -> None:
    note = Note("one", promised=7, term=7, index=9, released=9, history=((3, 1), (7, 5)))
    replica = Replica("b", Stored(note), 100.0, 1)
    replica.step(100.0, Tick())
    replica.step(100.0, GroupRead(7, Group("one", 6, "a", BOTH, BOTH)))
    assert replica.step(100.1, GroupSeen(8, Group("one", 7, "b", BOTH, BOTH))) == []
    assert not replica.leads
    assert replica.step(102.0, Tick()) == [Swap(8, Group("one", 8, "b", BOTH, BOTH))]


def led_clock(stored: Stored, hears: bool) -> float:
    """The group's clock once replica b leads at 100.1, whose machine says that it is 5000."""
    replica = Replica("b", stored, 100.0, 1, 4999.9)
    replica.step(100.0, Tick())
    replica.step(100.0, GroupRead(7, Group("one", 3, "a", BOTH, BOTH)))
    if hears:
        [hello] = [
            effect
            for effect in replica.step(100.0, Received("a", Beat(3, 55.0, 0, 0, 0.0)))
            if isinstance(effect, Send)
        ][1:]
        assert isinstance(hello.message, Hello)
        rejoin = Rejoin(3, hello.message.stream, 0, 0, 0, 0, 2000.0, (), (), ())
        replica.step(100.0, Received("a", rejoin))
    replica.step(100.1, ELECTED)
    return replica.clock(100.1)


@pytest.mark.parametrize(
    ("is_old", "hears", "clock"),
    [(False, False, 1000.1), (True, False, 5000.0), (True, True, 2000.1), (False, True, 2000.1)],
)
def test_a_machines_clock_is_asked_where_it_was_booted_and_nobody_told_the_groups(
    is_old: bool, hears: bool, clock: float
) -> None:
    stored = Stored(Note("one", promised=3), (), 1000.0, is_old)
    assert led_clock(stored, hears) == pytest.approx(clock)
