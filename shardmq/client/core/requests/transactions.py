"""Requests about transactions, as values."""

from collections.abc import Iterable, Mapping

from shardmq.client.api.results import (
    Begun,
    Committed,
    Sealed,
    result_of,
)
from shardmq.client.core.requests.groups import check_offsets
from shardmq.client.core.requests.request import Request, counted, nothing
from shardmq.client.core.validation import check_name, check_number, pairs
from shardmq.errors import InvalidRequest
from shardmq.limits import ATTEMPTS_MAX, DELAY_MS_MAX
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionOffsets,
    TransactionSeal,
)


def _begun(result: object) -> Begun:
    return result_of(Begun, result)


def _visible(result: object) -> bool:
    return result_of(Committed, result).visible


def transaction_begin(transaction: str, timeout_ms: int) -> Request[Begun]:
    """Begin a transaction, or find it."""
    check_name("transaction", transaction)
    check_number("timeout_ms", timeout_ms, 0, DELAY_MS_MAX)
    return Request(f"beginning transaction '{transaction}'", _begun, TransactionBegin(0, 0, transaction, timeout_ms))


def transaction_seal(number: int, attempt: int) -> Request[Sealed]:
    """Seal an attempt."""

    def sealed(result: object) -> Sealed:
        return Sealed(attempt, counted(result))

    return Request(
        f"sealing attempt {attempt} of transaction number {number}", sealed, TransactionSeal(0, 0, number, attempt)
    )


def transaction_offsets(
    number: int, attempt: int, sequence: int, place: tuple[str, str], offsets: Mapping[int, int], is_member: bool
) -> Request[None]:
    """Stage the commit of offsets of a group; `place` is (topic, group)."""
    topic, group = place
    check_offsets(topic, group, offsets)
    operation = TransactionOffsets(0, 0, number, attempt, sequence, topic, group, list(offsets.items()), is_member)
    what = f"staging offsets of group '{group}' of topic '{topic}' in transaction number {number}"
    return Request(what, nothing, operation)


def transaction_commit(transaction: str, number: int, attempts: Iterable[tuple[int, int]]) -> Request[bool]:
    """Commit attempts."""
    named = pairs("sealed", attempts)
    if len(named) > ATTEMPTS_MAX:
        raise InvalidRequest(f"a commit names {ATTEMPTS_MAX} attempts at most, not {len(named)}; make them larger")
    if len({attempt for attempt, _ in named}) < len(named):
        raise InvalidRequest("an attempt stands in `sealed` more than once; each counts once")
    return Request(
        f"committing transaction '{transaction}'", _visible, TransactionCommit(0, 0, transaction, number, named)
    )


def transaction_abort(transaction: str, number: int = 0) -> Request[None]:
    """Abort a transaction; number 0 is whichever has the name now."""
    check_name("transaction", transaction)
    return Request(f"aborting transaction '{transaction}'", nothing, TransactionAbort(0, 0, transaction, number))
