"""What commands on transactions change, or why they are refused.

(no such name) ── begin ─► undecided ──┬─ commit ─► committed: the name is remembered for days, begin answers so
                              ▲ begin  │
                              └────────┼─ abort, its time is over, its virtual host is deleted ─► (no such name)
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shardmq.errors import AccessRefused, InvalidRequest, NotAllowed, PreconditionFailed, Unavailable
from shardmq.limits import TRANSACTION_TIMEOUT_MS, TRANSACTIONS_MAX
from shardmq.topology.changes import Change, TransactionBegun, TransactionEnded
from shardmq.topology.commands import AbortTransaction, BeginTransaction, CommitTransaction
from shardmq.topology.entities import OpenTransaction, check_name
from shardmq.topology.topology import Topology

TransactionCommand = BeginTransaction | CommitTransaction | AbortTransaction


@dataclass(frozen=True, slots=True)
class TransactionFacts:
    """What the rules need to know beside the topology.

    Attributes:
        next_number: of the next new transaction.
        now_ms: steady time.
        committed: the number under which the name in question was committed, if it was.
        following: how many decisions some shard has yet to follow.
        growing: virtual host and name of the topics that are getting partitions, of which gateways have not heard.
    """

    next_number: int
    now_ms: int
    committed: int | None = None
    following: int = 0
    growing: Collection[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command.

    Attributes:
        changes: empty where everything is already so.
        result: the answer's value, as far as the rules know it.
    """

    changes: list[Change]
    result: tuple[int, bool] | None = None


def outcome_of(topology: Topology, command: TransactionCommand, now: TransactionFacts) -> Outcome:
    """What a command on a transaction changes. Whether a commit's attempts are complete is asked of the shards.

    Args:
        topology: as it is now; not touched.
        command: what is asked for.
        now: facts beside the topology.

    Raises:
        RequestError: refused; NotFound, PreconditionFailed, AccessRefused, NotAllowed, Unavailable or InvalidRequest.
    """
    topology.check_vhost(command.vhost)
    check_name("transaction", command.name)
    return _RULES[type(command)](topology, command, now)


def end_all(topology: Topology, vhost: str, now_ms: int) -> list[Change]:
    """Abort the undecided transactions of a virtual host that is being deleted."""
    return [_ended(there, now_ms) for there in topology.transactions.values() if there.vhost == vhost]


def _begin(topology: Topology, command: BeginTransaction, now: TransactionFacts) -> Outcome:
    there = topology.transaction(command.vhost, command.name)
    timeout_ms = command.timeout_ms or TRANSACTION_TIMEOUT_MS
    current = there.number if there is not None else now.committed
    if command.number not in (0, current):
        raise _over(command.number)
    if there is not None:
        _check_user(there, command.user, "begin it again")
        renewed = msgspec.structs.replace(there, timeout_ms=timeout_ms, touched_ms=now.now_ms)
        return Outcome([TransactionBegun(renewed)], (there.number, False))
    if now.committed is not None:
        return Outcome([], (now.committed, True))
    if len(topology.transactions) >= TRANSACTIONS_MAX:
        raise NotAllowed(
            f"cannot begin transaction '{command.name}': {TRANSACTIONS_MAX} are undecided, which is the "
            "limit; commit or abort some of them"
        )
    if now.following >= TRANSACTIONS_MAX:
        raise Unavailable(
            f"cannot begin transaction '{command.name}': {now.following} that are decided wait for a "
            "shard that is away or busy; try again later"
        )
    topics = topology.topics
    growing = {name: len(topics[vhost, name].partitions) for vhost, name in now.growing if vhost == command.vhost}
    new = OpenTransaction(command.vhost, command.name, now.next_number, command.user, timeout_ms, now.now_ms, growing)
    return Outcome([TransactionBegun(new)], (new.number, False))


def _commit(topology: Topology, command: CommitTransaction, now: TransactionFacts) -> Outcome:
    there = topology.transaction(command.vhost, command.name)
    if there is None or there.number != command.number:
        if now.committed == command.number:
            return Outcome([])
        raise _over(command.number)
    _check_user(there, command.user, "commit it")
    attempts = [attempt for attempt, _ in command.attempts]
    if len(set(attempts)) < len(attempts):
        raise InvalidRequest(f"the commit of transaction '{command.name}' names an attempt twice; name each once")
    return Outcome([_ended(there, now.now_ms, attempts)])


def _abort(topology: Topology, command: AbortTransaction, now: TransactionFacts) -> Outcome:
    there = topology.transaction(command.vhost, command.name)
    if there is not None and command.number in (0, there.number):
        if command.has_expired and not is_overdue(there, now.now_ms):
            return Outcome([])  # it was begun again meanwhile
        _check_user(there, command.user, "abort it")
        return Outcome([_ended(there, now.now_ms)])
    if now.committed is not None and command.number in (0, now.committed):
        raise PreconditionFailed(
            f"transaction {now.committed} ('{command.name}') was committed already; that stands, "
            "and its messages are in their queues or on their way there"
        )
    return Outcome([])


def is_overdue(transaction: OpenTransaction, now_ms: int) -> bool:
    """Whether a transaction was not begun again within its timeout, by steady time."""
    return now_ms >= transaction.touched_ms + transaction.timeout_ms


def _ended(there: OpenTransaction, now_ms: int, attempts: list[int] | None = None) -> TransactionEnded:
    return TransactionEnded(there.vhost, there.name, there.number, attempts is not None, attempts or [], now_ms)


def _over(number: int) -> PreconditionFailed:
    return PreconditionFailed(
        f"transaction {number} is over or unknown: it was committed, aborted or has expired; begin it again"
    )


def _check_user(there: OpenTransaction, user: str, verb: str) -> None:
    """Check that the user began the transaction. "" stands for an administrator, who may do it too."""
    if user not in ("", there.user):
        raise AccessRefused(
            f"transaction '{there.name}' in vhost '{there.vhost}' was begun by user '{there.user}'; "
            f"user '{user}' may not {verb}"
        )


_RULES: Final[dict[type[Any], Callable[[Topology, Any, TransactionFacts], Outcome]]] = {
    BeginTransaction: _begin,
    CommitTransaction: _commit,
    AbortTransaction: _abort,
}
