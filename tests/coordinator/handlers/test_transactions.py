"""Transactions through the real process loop: what is asked before they end, who is told, who waits."""

from typing import TYPE_CHECKING

import pytest

from shardmq.bus.messages.base import Answer, Refusal
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
from tests.coordinator.transacting import A, B, begun, commit, counts, refused, told, visible

if TYPE_CHECKING:
    from tests.coordinator.conftest import Room, ShardEnd


@pytest.fixture
def ends(room: "Room") -> list["ShardEnd"]:
    return [room.shard(0), room.shard(1)]


def test_beginning_is_answered_when_every_gateway_takes_its_messages(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    other.applies = False
    request = asking.ask(BeginTransaction("/", "t", "anna", 5000))
    room.until(lambda: other.topology.transactions)
    room.settle(asking)
    assert request not in asking.answers
    other.say_applied()
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
        assert shard.decisions == [(number, [B, A])]
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
    assert not ends[0].decisions
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
    room.until(lambda: all(shard.decisions == [(number, [])] for shard in ends))
    assert not ends[0].prepared
    assert room.perform(gateway, AbortTransaction("/", "t", number, "anna")) == Answer(3, None)
    assert refused(room, gateway, commit(number))[0] == 406
    assert begun(room, gateway) == (number + 1, False)


def test_an_abort_waits_for_gateways_and_not_for_shards(room: "Room") -> None:
    room.start()
    asking, other = room.gateway("gateway-0"), room.gateway("gateway-1")
    number, _ = begun(room, asking)
    other.applies = False
    request = asking.ask(AbortTransaction("/", "t", number, "anna"))
    room.until(lambda: not other.topology.transactions)
    room.settle(asking)
    assert request not in asking.answers
    other.say_applied()
    assert room.until(lambda: asking.answers.get(request)) == Answer(request, None)
    assert counts(room, asking) == (0, 1)


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
    room.until(lambda: [(open_, []), (coming, [])] == ends[0].decisions[-2:])
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


def test_beginning_again_is_told(room: "Room") -> None:
    room.start()
    gateway = room.gateway()
    number, _ = begun(room, gateway)
    begun(room, gateway)
    first, again = [change.transaction for change in told(gateway) if isinstance(change, TransactionBegun)]
    assert first.number == again.number == number
    assert first.touched_ms <= again.touched_ms
