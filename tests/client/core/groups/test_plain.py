"""A plain consumer in an ordered group: what it may hand out, and when it lets go."""

from contextlib import nullcontext

import pytest

from shardmq.client.core.groups.plain import PlainMember


@pytest.fixture
def asked() -> list[PlainMember]:
    return []


@pytest.fixture
def member(asked: list[PlainMember]) -> PlainMember:
    return PlainMember(nullcontext(), asked.append)


def test_what_is_revoked_is_not_handed_out_and_is_let_go_of_at_once(
    member: PlainMember, asked: list[PlainMember]
) -> None:
    assert member.take(1, 5)
    member.revoked("c", [2, 3], is_lost=False)
    assert asked == [member]
    assert not member.take(2, 7)
    assert not member.is_gone(1, 7)
    assert (member.tag, member.to_let_go(), member.to_let_go()) == ("c", [2, 3], [])


def test_a_partition_in_hand_is_let_go_of_when_the_program_is_done_with_it(member: PlainMember) -> None:
    assert member.take(2, 1)
    assert member.take(2, 2)
    member.revoked("c", [1, 2], is_lost=False)
    assert member.to_let_go() == [1]
    assert member.is_gone(2, 2)
    assert member.put_down(2)
    assert member.to_let_go() == []
    assert member.put_down(2)
    assert member.to_let_go() == [2]


def test_a_partition_that_comes_back_is_handed_out_from_there_on(member: PlainMember) -> None:
    member.revoked("c", [2], is_lost=False)
    assert member.to_let_go() == [2]
    member.assigned([2], 9)
    assert not member.take(2, 9)
    assert member.take(2, 10)
    member.assigned([2], 12)
    assert member.take(2, 11)


def test_of_what_was_lost_the_broker_is_told_when_the_program_comes_back(
    member: PlainMember, asked: list[PlainMember]
) -> None:
    assert member.take(2, 3)
    member.revoked("c", [2], is_lost=True)
    assert (asked, member.to_let_go(), member.take(2, 4)) == ([], [], False)
    assert member.put_down(2)
    assert (asked, member.to_let_go(), member.to_let_go()) == ([], [2], [])


def test_with_the_connection_nothing_is_owed_any_more(member: PlainMember) -> None:
    member.revoked("c", [2], is_lost=True)
    member.revoked("c", [3], is_lost=False)
    member.broken()
    assert member.to_let_go() == []
