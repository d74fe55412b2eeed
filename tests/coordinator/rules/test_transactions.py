"""The rules for transactions."""

import pytest

from shardmq.coordinator.rules import transactions
from shardmq.coordinator.rules.access import new_vhost
from shardmq.coordinator.rules.transactions import TransactionCommand, TransactionFacts, end_all, outcome_of
from shardmq.errors import (
    AccessRefused,
    InvalidRequest,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    RequestError,
    Unavailable,
)
from shardmq.limits import TRANSACTION_TIMEOUT_MS
from shardmq.topology.changes import Change, TransactionBegun, TransactionEnded
from shardmq.topology.commands import AbortTransaction, BeginTransaction, CommitTransaction
from shardmq.topology.entities import OpenTransaction
from shardmq.topology.topology import Topology

OPEN = OpenTransaction("/", "open", 3, "anna", 1000, 50_000)
NOW = TransactionFacts(next_number=9, now_ms=50_500)
LATER = TransactionFacts(next_number=9, now_ms=51_000)
COMMITTED = TransactionFacts(next_number=9, now_ms=50_500, committed=2)


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    for change in (*new_vhost("/"), *new_vhost("other"), TransactionBegun(OPEN)):
        topology.apply(change)
    return topology


def ended(*attempts: int, is_committed: bool, now: TransactionFacts = NOW) -> list[Change]:
    return [TransactionEnded("/", "open", 3, is_committed, list(attempts), now.now_ms)]


@pytest.mark.parametrize(
    ("command", "now", "begun"),
    [
        (
            BeginTransaction("/", "new", "bob", 0),
            NOW,
            OpenTransaction("/", "new", 9, "bob", TRANSACTION_TIMEOUT_MS, 50_500),
        ),
        (BeginTransaction("/", "new", "bob", 7), NOW, OpenTransaction("/", "new", 9, "bob", 7, 50_500)),
        (BeginTransaction("other", "open", "bob", 7), NOW, OpenTransaction("other", "open", 9, "bob", 7, 50_500)),
        (BeginTransaction("/", "open", "anna", 7), NOW, OpenTransaction("/", "open", 3, "anna", 7, 50_500)),
        (BeginTransaction("/", "open", "anna", 7), LATER, OpenTransaction("/", "open", 3, "anna", 7, 51_000)),
    ],
)
def test_beginning_makes_one_or_begins_its_time_anew(
    topology: Topology, command: BeginTransaction, now: TransactionFacts, begun: OpenTransaction
) -> None:
    outcome = outcome_of(topology, command, now)
    assert (outcome.changes, outcome.result) == ([TransactionBegun(begun)], (begun.number, False))


def test_beginning_what_is_committed_changes_nothing(topology: Topology) -> None:
    outcome = outcome_of(topology, BeginTransaction("/", "done", "bob", 0), COMMITTED)
    assert (outcome.changes, outcome.result) == ([], (2, True))


@pytest.mark.parametrize(
    ("command", "now", "changes"),
    [
        (CommitTransaction("/", "open", 3, "anna", [(8, 1), (7, 0)]), NOW, ended(8, 7, is_committed=True)),
        (CommitTransaction("/", "open", 3, "", []), NOW, ended(is_committed=True)),
        (CommitTransaction("/", "open", 3, "anna", []), LATER, ended(is_committed=True, now=LATER)),
        (CommitTransaction("/", "done", 2, "anna", [(8, 1)]), COMMITTED, []),
        (AbortTransaction("/", "open", 3, "anna"), NOW, ended(is_committed=False)),
        (AbortTransaction("/", "open", 0, ""), NOW, ended(is_committed=False)),
        (AbortTransaction("/", "open", 2, "bob"), NOW, []),
        (AbortTransaction("/", "none", 0, "bob"), NOW, []),
        (AbortTransaction("/", "done", 1, "bob"), COMMITTED, []),
        (AbortTransaction("/", "open", 3, "", has_expired=True), NOW, []),
        (AbortTransaction("/", "open", 3, "", has_expired=True), LATER, ended(is_committed=False, now=LATER)),
    ],
)
def test_commands_become_changes(
    topology: Topology, command: TransactionCommand, now: TransactionFacts, changes: list[Change]
) -> None:
    assert outcome_of(topology, command, now).changes == changes


@pytest.mark.parametrize(
    ("command", "now", "error", "text"),
    [
        (BeginTransaction("nowhere", "x", "anna", 0), NOW, NotFound, "no vhost 'nowhere'"),
        (BeginTransaction("/", "", "anna", 0), NOW, InvalidRequest, "a transaction needs a name"),
        (BeginTransaction("/", "x" * 256, "anna", 0), NOW, InvalidRequest, "over 255 bytes"),
        (
            BeginTransaction("/", "open", "bob", 0),
            NOW,
            AccessRefused,
            "transaction 'open' in vhost '/' was begun by user 'anna'; user 'bob' may not begin it again",
        ),
        (BeginTransaction("/", "new", "bob", 0), TransactionFacts(9, 0, None, 10_000), Unavailable, "wait for a shard"),
        (CommitTransaction("nowhere", "open", 3, "anna", []), NOW, NotFound, "no vhost 'nowhere'"),
        (CommitTransaction("/", "open", 3, "bob", []), NOW, AccessRefused, "user 'bob' may not commit it"),
        (CommitTransaction("/", "open", 4, "anna", []), NOW, PreconditionFailed, "transaction 4 is over or unknown"),
        (CommitTransaction("/", "none", 3, "anna", []), NOW, PreconditionFailed, "begin it again"),
        (CommitTransaction("/", "done", 1, "anna", []), COMMITTED, PreconditionFailed, "is over or unknown"),
        (CommitTransaction("/", "open", 3, "anna", [(8, 1), (8, 1)]), NOW, InvalidRequest, "names an attempt twice"),
        (AbortTransaction("/", "open", 0, "bob"), NOW, AccessRefused, "user 'bob' may not abort it"),
        (AbortTransaction("/", "done", 2, ""), COMMITTED, PreconditionFailed, "transaction 2 .* was committed already"),
        (AbortTransaction("/", "done", 0, "anna"), COMMITTED, PreconditionFailed, "was committed already"),
    ],
)
def test_commands_are_refused(
    topology: Topology, command: TransactionCommand, now: TransactionFacts, error: type[RequestError], text: str
) -> None:
    with pytest.raises(error, match=text):
        outcome_of(topology, command, now)


def test_going_on_with_a_number_makes_no_other(topology: Topology) -> None:
    renewed = OpenTransaction("/", "open", 3, "anna", 7, 50_500)
    assert outcome_of(topology, BeginTransaction("/", "open", "anna", 7, 3), NOW).changes == [TransactionBegun(renewed)]
    assert outcome_of(topology, BeginTransaction("/", "done", "anna", 7, 2), COMMITTED).result == (2, True)
    for name, number, now in (("open", 2, NOW), ("done", 3, COMMITTED), ("gone", 5, NOW)):
        with pytest.raises(PreconditionFailed, match=f"transaction {number} is over"):
            outcome_of(topology, BeginTransaction("/", name, "anna", 7, number), now)


def test_so_many_may_be_undecided(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "TRANSACTIONS_MAX", 1)
    with pytest.raises(NotAllowed, match="1 are undecided, which is the limit"):
        outcome_of(topology, BeginTransaction("/", "new", "anna", 0), NOW)
    assert outcome_of(topology, BeginTransaction("/", "open", "anna", 0), NOW).result == (3, False)


def test_a_virtual_hosts_transactions_end_with_it(topology: Topology) -> None:
    topology.apply(TransactionBegun(OpenTransaction("other", "open", 4, "bob", 1000, 0)))
    assert end_all(topology, "/", 50_500) == ended(is_committed=False)
