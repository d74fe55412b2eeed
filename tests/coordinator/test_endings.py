"""Transactions through the real process loop and real links: what is asked before they end, who is told, who waits."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Call, Inspect, Refusal
from shardmq.bus.messages.coordinator import Changes
from shardmq.coordinator.handlers import commands as desk
from shardmq.coordinator.links import shard as shards
from shardmq.coordinator.rules import transactions
from shardmq.topology.changes import TransactionBegun, TransactionEnded
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    DeclareExchange,
    DeclareQueue,
    DeleteUser,
    DeleteVhost,
    PutUser,
    PutVhost,
)

if TYPE_CHECKING:
    from conftest import GatewayEnd, Room, ShardEnd

A, B = 2**62 + 1, 2**63 - 1
"""Attempts."""


@pytest.fixture
def ends(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def begun(
    room: "Room", gateway: "GatewayEnd", name: str = "t", user: str = "anna", vhost: str = "/"
) -> tuple[int, bool]:
    answer = room.perform(gateway, BeginTransaction(vhost, name, user, 0))
    assert isinstance(answer, Answer)
    number, is_committed = answer.result
    return number, is_committed


def commit(number: int, *attempts: tuple[int, int], name: str = "t", user: str = "anna") -> CommitTransaction:
    return CommitTransaction("/", name, number, user, list(attempts))


def visible(room: "Room", gateway: "GatewayEnd", command: CommitTransaction) -> bool:
    answer = room.perform(gateway, command)
    assert isinstance(answer, Answer), answer
    assert isinstance(answer.result, bool)
    return answer.result


def refused(room: "Room", gateway: "GatewayEnd", command: object) -> tuple[int, str]:
    answer = room.perform(gateway, command)  # type: ignore[arg-type]
    assert isinstance(answer, Refusal), answer
    return answer.code, answer.text


def told(gateway: "GatewayEnd") -> list[object]:
    return [change for event in gateway.heard if isinstance(event, Changes) for change in event.changes]


def counts(room: "Room", gateway: "GatewayEnd") -> tuple[int, int]:
    """Undecided transactions, and those that some shard has yet to follow, as the status tells."""
    request = 1000 + len(gateway.heard)
    gateway.dialer.post(Call(request, Inspect()))
    answer = room.until(lambda: gateway.answers.pop(request, None))
    assert isinstance(answer, Answer)
    return answer.result["transactions"], answer.result["concluding"]


def test_beginning_is_answered_when_every_gateway_takes_its_messages(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    other.syncs = False
    request = asking.ask(BeginTransaction("/", "t", "anna", 5000))
    room.until(lambda: other.topology.transactions)
    room.settle(asking)
    assert request not in asking.answers
    other.say_synced()
    answer = room.until(lambda: asking.answers.get(request))
    assert isinstance(answer, Answer)
    assert answer.result == [1, False]
    assert asking.topology.transactions == other.topology.transactions
    there = asking.topology.transactions[1]
    assert (there.name, there.user, there.timeout_ms) == ("t", "anna", 5000)


def test_a_gateway_is_first_told_what_is_undecided(room: "Room") -> None:
    room.start()
    number, _ = begun(room, room.gateway("gateway-0"))
    later = room.gateway("gateway-1")
    assert list(later.topology.transactions) == [number]
    assert later.shards == [room.address("shard-0"), room.address("shard-1")]


def test_a_name_that_is_undecided_keeps_its_number_also_over_a_restart(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    assert begun(room, gateway) == (number, False)
    room.restart(boot_id="second")
    gateway = room.gateway("gateway-1")
    assert begun(room, gateway) == (number, False)
    assert begun(room, gateway, "other") == (number + 1, False)


def test_who_did_not_begin_it_is_refused(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    for command in (
        BeginTransaction("/", "t", "bob", 0),
        commit(number, user="bob"),
        AbortTransaction("/", "t", number, "bob"),
    ):
        assert refused(room, gateway, command)[0] == 403
    assert isinstance(room.perform(gateway, AbortTransaction("/", "t", number, "")), Answer)


def test_a_commit_is_decided_when_all_shards_together_have_what_it_claims(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts, ends[1].counts = {A: 3, B: 1}, {A: 4}
    assert visible(room, gateway, commit(number, (B, 1), (A, 7)))
    for shard in ends:
        assert shard.prepared == [(number, [B, A])]
        assert shard.concluded == [(number, [B, A])]
    (ended,) = [change for change in told(gateway) if isinstance(change, TransactionEnded)]
    assert (ended.number, ended.is_committed, ended.attempts) == (number, True, [B, A])
    assert counts(room, gateway) == (0, 0)


@pytest.mark.parametrize(
    ("counted", "text"),
    [
        (3, f"attempt {A} of transaction 1 ('t') has 4 messages, and the commit names 5; commit what its seal tells"),
        (-1, f"attempt {A} of transaction 1 ('t') is not sealed on shard-0, and may still take messages; seal it"),
    ],
)
def test_a_commit_that_claims_something_else_decides_nothing(
    room: "Room", ends: list["ShardEnd"], counted: int, text: str
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts, ends[1].counts = {A: counted}, {A: 1}
    code, said = refused(room, gateway, commit(number, (B, 0), (A, 5)))
    assert (code, said[: len(text)]) == (406, text)
    assert list(gateway.topology.transactions) == [number]
    assert not ends[0].concluded
    ends[0].counts = {A: 4}
    assert visible(room, gateway, commit(number, (A, 5)))


@pytest.mark.usefixtures("ends")
def test_what_is_committed_stays_committed(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    for life in ("second", "third"):
        assert visible(room, gateway, commit(number))
        code, text = refused(room, gateway, AbortTransaction("/", "t", number, "anna"))
        assert (code, text.startswith(f"transaction {number} ('t') was committed already")) == (406, True)
        assert begun(room, gateway) == (number, True)
        assert refused(room, gateway, commit(number + 1))[0] == 406
        room.restart(boot_id=life)
        gateway = room.gateway(f"gateway-{life}")
    assert begun(room, gateway, "other") == (number + 1, False)


@pytest.mark.usefixtures("ends")
def test_all_of_a_name_at_once_end_alike(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    requests = [
        gateway.ask(command)
        for command in (
            BeginTransaction("/", "t", "anna", 0),
            commit(1),
            commit(1),
            BeginTransaction("/", "t", "anna", 0),
            AbortTransaction("/", "t", 0, "anna"),
            BeginTransaction("/", "u", "anna", 0),
        )
    ]
    room.until(lambda: gateway.answers.keys() >= set(requests))
    answers = [gateway.answers[request] for request in requests]
    assert [answer.result if isinstance(answer, Answer) else answer.code for answer in answers] == [
        [1, False],
        True,
        True,
        [1, True],
        406,
        [2, False],
    ]


def test_an_abort_is_told_to_everybody_and_frees_the_name(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    assert room.perform(gateway, AbortTransaction("/", "t", 0, "anna")) == Answer(2, None)
    assert not gateway.topology.transactions
    room.until(lambda: all(shard.concluded == [(number, [])] for shard in ends))
    assert not ends[0].prepared
    assert room.perform(gateway, AbortTransaction("/", "t", number, "anna")) == Answer(3, None)
    assert refused(room, gateway, commit(number))[0] == 406
    assert begun(room, gateway) == (number + 1, False)


def test_an_abort_waits_for_gateways_and_not_for_shards(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    number, _ = begun(room, asking)
    other.syncs = False
    request = asking.ask(AbortTransaction("/", "t", number, "anna"))
    room.until(lambda: not other.topology.transactions)
    room.settle(asking)
    assert request not in asking.answers
    other.say_synced()
    assert room.until(lambda: asking.answers.get(request)) == Answer(request, None)
    assert counts(room, asking) == (0, 1)


def test_a_commit_while_a_shard_is_away_decides_nothing(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "SHARD_SECONDS", 0.3)
    room.start()
    gateway, here = room.gateway(), room.shard(0)
    number, _ = begun(room, gateway)
    code, text = refused(room, gateway, commit(number))
    assert (code, text.startswith("shard-1 is not reachable")) == (506, True)
    assert list(gateway.topology.transactions) == [number]
    assert not here.concluded
    monkeypatch.setattr(desk, "SHARD_SECONDS", 10.0)
    room.shard(1)
    assert visible(room, gateway, commit(number))


def test_a_shard_that_comes_back_is_asked_again(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].answers = False
    request = gateway.ask(commit(number, (A, 2)))
    room.until(lambda: ends[1].prepared)
    room.hang_up(ends[1])
    back = room.shard(1)
    back.counts = {A: 2}
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, True)
    assert back.prepared == [(number, [A])]


def test_what_a_shard_says_of_a_commit_given_up_is_not_taken_for_the_next(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].answers = False
    ends[1].counts = {A: 1}
    monkeypatch.setattr(desk, "SHARD_SECONDS", 0.3)
    assert refused(room, gateway, commit(number, (A, 1)))[0] == 506
    monkeypatch.setattr(desk, "SHARD_SECONDS", 10.0)
    ends[1].counts = {A: 5}
    request = gateway.ask(commit(number, (B, 0), (A, 5)))
    room.until(lambda: len(ends[1].prepared) == 2)
    ends[1].answers = True
    assert room.until(lambda: gateway.answers.get(request)) == Answer(request, True)


def test_a_shards_refusal_to_prepare_reaches_who_asked(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].refusal = "out of order"
    assert refused(room, gateway, commit(number)) == (506, "shard-0: out of order")
    assert list(gateway.topology.transactions) == [number]


def test_a_commit_is_answered_when_every_shard_has_followed(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[1].follows = False
    request = gateway.ask(commit(number))
    room.until(lambda: ends[1].concluded and not gateway.topology.transactions)
    room.settle(gateway)
    assert request not in gateway.answers
    again = gateway.ask(commit(number))
    room.hang_up(ends[1])
    assert counts(room, gateway) == (0, 1)
    back = room.shard(1)
    room.until(lambda: gateway.answers.keys() >= {request, again})
    assert (gateway.answers[request], gateway.answers[again]) == (Answer(request, True), Answer(again, True))
    assert back.concluded == [(number, [])]
    assert len(ends[0].prepared) == 1
    assert counts(room, gateway) == (0, 0)


def test_a_commit_that_a_shard_does_not_follow_stands_and_is_not_visible_yet(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts, ends[1].follows = {A: 1}, False
    monkeypatch.setattr(desk, "SHARD_SECONDS", 0.5)
    assert not visible(room, gateway, commit(number, (A, 1)))
    assert not visible(room, gateway, commit(number, (A, 1)))
    assert begun(room, gateway) == (number, True)
    room.hang_up(ends[1])
    room.restart(boot_id="second")
    gateway, back = room.gateway("gateway-1"), room.shard(1)
    room.until(lambda: back.concluded)
    monkeypatch.setattr(desk, "SHARD_SECONDS", 10.0)
    assert visible(room, gateway, commit(number, (A, 1)))
    assert back.concluded == [(number, [A])]
    assert ends[0].concluded == [(number, [A])]
    room.restart()
    assert counts(room, room.gateway("gateway-2")) == (0, 0)


def test_a_decision_that_a_shard_refused_to_follow_is_told_again(
    room: "Room", ends: list["ShardEnd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "FOLLOW_AGAIN_SECONDS", 0.1)
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].refusal = "no room on the disk"
    room.perform(gateway, AbortTransaction("/", "t", number, "anna"))
    room.until(lambda: len(ends[0].concluded) > 2)
    assert counts(room, gateway) == (0, 1)
    ends[0].refusal = None
    room.until(lambda: counts(room, gateway) == (0, 0))


def test_a_coordinator_killed_before_the_decision_has_decided_nothing(room: "Room", ends: list["ShardEnd"]) -> None:
    room.spawn()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].answers = False
    gateway.ask(commit(number, (A, 3)))
    room.until(lambda: ends[0].prepared)
    room.kill()
    ends[0].withheld.clear()
    ends[0].answers, ends[0].counts = True, {A: 3}
    room.spawn()
    gateway = room.gateway("gateway-1")
    assert list(gateway.topology.transactions) == [number]
    assert not ends[0].concluded
    assert visible(room, gateway, commit(number, (A, 3)))


def test_a_coordinator_killed_after_the_decision_has_the_shards_follow_it(room: "Room", ends: list["ShardEnd"]) -> None:
    room.spawn()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].counts = {A: 3}
    for shard in ends:
        shard.follows = False
    gateway.ask(commit(number, (A, 3)))
    room.until(lambda: ends[0].concluded or ends[1].concluded)
    room.kill()
    for shard in ends:
        shard.follows = True
        shard.concluded.clear()
    room.spawn()
    gateway = room.gateway("gateway-1")
    assert not gateway.topology.transactions
    assert visible(room, gateway, commit(number, (A, 3)))
    for shard in ends:  # what the first one said may have been on its way
        assert set(map(str, shard.concluded)) == {str((number, [A]))}
    assert refused(room, gateway, AbortTransaction("/", "t", number, ""))[0] == 406


def test_others_are_not_held_up(room: "Room", ends: list["ShardEnd"]) -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    ends[0].answers = False
    waiting = gateway.ask(commit(number))
    behind = gateway.ask(AbortTransaction("/", "t", number, "anna"))
    room.until(lambda: ends[0].prepared)
    assert begun(room, gateway, "other") == (number + 1, False)
    assert isinstance(room.perform(gateway, AbortTransaction("/", "other", 0, "anna")), Answer)
    assert isinstance(room.perform(gateway, DeclareExchange("/", "t", "fanout", True, {})), Answer)
    queue = gateway.ask(DeclareQueue("/", "t", True, {}))
    room.until(lambda: "t" in ends[0].queues or "t" in ends[1].queues)
    assert not {waiting, behind} & gateway.answers.keys()
    ends[0].answers = True
    room.until(lambda: gateway.answers.keys() >= {waiting, behind, queue})
    assert gateway.answers[waiting] == Answer(waiting, True)
    assert isinstance(gateway.answers[behind], Refusal)


def test_there_is_a_limit(room: "Room", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTIONS_MAX", 2)
    room.start()
    gateway = room.gateway()
    begun(room, gateway, "a")
    begun(room, gateway, "b")
    assert refused(room, gateway, BeginTransaction("/", "c", "anna", 0))[0] == 530
    assert counts(room, gateway) == (2, 0)


def test_a_virtual_host_goes_with_its_transactions_and_the_names_it_remembered(
    room: "Room", ends: list["ShardEnd"]
) -> None:
    room.start()
    gateway = room.gateway()
    kept, _ = begun(room, gateway)
    room.perform(gateway, PutVhost("shop"))
    done, _ = begun(room, gateway, "done", vhost="shop")
    assert visible(room, gateway, CommitTransaction("shop", "done", done, "anna", []))
    open_, _ = begun(room, gateway, "open", vhost="shop")
    coming, _ = begun(room, gateway, "coming", vhost="shop")
    ends[0].answers = False
    waiting = gateway.ask(CommitTransaction("shop", "coming", coming, "anna", []))
    behind = gateway.ask(BeginTransaction("shop", "coming", "anna", 0))
    room.until(lambda: (coming, []) in ends[0].prepared)
    gateway.heard.clear()
    assert isinstance(room.perform(gateway, DeleteVhost("shop")), Answer)
    for request in (waiting, behind):
        answer = gateway.answers[request]
        assert isinstance(answer, Refusal)
        assert answer.code == 404
    assert [change.number for change in told(gateway)[:2] if isinstance(change, TransactionEnded)] == [open_, coming]
    assert list(gateway.topology.transactions) == [kept]
    ends[0].answers = True
    room.until(lambda: [(open_, []), (coming, [])] == ends[0].concluded[-2:])
    room.perform(gateway, PutVhost("shop"))
    assert begun(room, gateway, "done", vhost="shop") == (coming + 1, False)


@pytest.mark.usefixtures("ends")
def test_a_virtual_host_deleted_and_made_again_in_one_pass_remembers_nothing(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutVhost("shop"))
    number, _ = begun(room, gateway, vhost="shop")
    assert visible(room, gateway, CommitTransaction("shop", "t", number, "anna", []))
    requests = [
        gateway.ask(command)
        for command in (
            DeleteVhost("shop"),
            PutVhost("shop"),
            BeginTransaction("shop", "t", "bob", 0),
        )
    ]
    room.until(lambda: gateway.answers.keys() >= set(requests))
    assert gateway.answers[requests[-1]] == Answer(requests[-1], [number + 1, False])


def test_a_users_transactions_outlive_the_user(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    room.perform(gateway, PutUser("", "anna", None))
    number, _ = begun(room, gateway)
    assert isinstance(room.perform(gateway, DeleteUser("", "anna")), Answer)
    assert list(gateway.topology.transactions) == [number]
    assert isinstance(room.perform(gateway, AbortTransaction("/", "t", 0, "")), Answer)


@pytest.mark.usefixtures("ends")
def test_more_shards_follow_from_their_first_session_on(room: "Room") -> None:
    room.start()
    number, _ = begun(room, room.gateway())
    room.shards = 3
    third = room.shard(2)
    room.restart()
    gateway = room.gateway("gateway-1")
    assert visible(room, gateway, commit(number))
    assert third.concluded == [(number, [])]


def test_beginning_again_is_told(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    begun(room, gateway)
    first, again = [change.transaction for change in told(gateway) if isinstance(change, TransactionBegun)]
    assert first.number == again.number == number
    assert first.touched_ms <= again.touched_ms
