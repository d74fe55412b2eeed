"""How transactions end: every shard is asked whether it has what a commit claims, and is told what was decided.

    prepare ─► counts of every shard ─► sums as the commit claims? ─► prepared
    conclude ─► every shard, in every session, until it has answered ─► followed

Nothing hangs on a preparation: it may be given up and begun again. What is concluded stands, and outlives this process
in the store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from shardmq.bus.messages.base import Refusal
from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.storage.transactions import Decision
from shardmq.errors import PreconditionFailed, RequestError, request_error
from shardmq.topology.changes import TransactionEnded
from shardmq.topology.commands import CommitTransaction

NOT_SEALED: Final = -1
"""What a shard counts for an attempt that may still take something."""

Prepared = Callable[[RequestError | None], None]
"""Called when every shard has what is claimed, or with why there is no commit."""


@dataclass(slots=True, eq=False)
class _Preparation:
    """A commit whose shards are asked.

    Attributes:
        command: what it claims.
        sums: messages counted so far, by attempt in the command's order.
        missing: shards that have not answered.
        prepared: whom to tell.
    """

    command: CommitTransaction
    sums: list[int]
    missing: set[int]
    prepared: Prepared


class TwoPhaseCommit:
    """See the module.

    Args:
        shards: the links to all shards, by number.
        conclusions: of an earlier life of this process, by transaction: shards that have not followed are told again.
    """

    def __init__(self, shards: list[ShardLink], conclusions: Mapping[int, Decision]) -> None:
        self._shards = shards
        self._preparations: dict[int, _Preparation] = {}
        self._concluding: dict[int, set[int]] = {}  # by transaction, the shards that have yet to follow
        for number, conclusion in conclusions.items():
            here = [shard for shard in conclusion.shards if shard < len(shards)]
            self._conclude(number, conclusion.attempts, here)

    @property
    def concluding(self) -> int:
        """How many decisions some shard has yet to follow."""
        return len(self._concluding)

    def prepare(self, command: CommitTransaction, prepared: Prepared) -> None:
        """Ask all shards whether a commit's attempts are complete. `prepared` is called once, unless given up before.

        One commit of a transaction at a time.
        """
        attempts = [attempt for attempt, _ in command.attempts]
        missing = set(range(len(self._shards)))
        preparation = _Preparation(command, [0] * len(attempts), missing, prepared)
        self._preparations[command.number] = preparation
        for number, shard in enumerate(self._shards):
            shard.prepare(command.number, attempts, partial(self._on_counts, preparation, number))

    def give_up(self, transaction: int) -> str:
        """Wait no longer for a commit's shards.

        Returns:
            The name of one that has not answered.
        """
        preparation = self._preparations.pop(transaction)
        for number in preparation.missing:
            self._shards[number].prepare_no_longer(transaction)
        return self._shards[min(preparation.missing)].name

    def conclude(self, ended: TransactionEnded) -> None:
        """Tell all shards what was decided, now or when they are back."""
        self._conclude(ended.number, ended.attempts, range(len(self._shards)))

    def has_followed(self, transaction: int) -> bool:
        """Whether all shards have done what was decided."""
        return transaction not in self._concluding

    def take_concluded(self) -> list[tuple[int, int]]:
        """The transactions that shards have followed since the last call, and which shard each."""
        concluded = [
            (transaction, number) for number, shard in enumerate(self._shards) for transaction in shard.take_concluded()
        ]
        for transaction, number in concluded:
            missing = self._concluding[transaction]
            missing.discard(number)
            if not missing:
                del self._concluding[transaction]
        return concluded

    def _conclude(self, transaction: int, attempts: list[int], shards: Sequence[int]) -> None:
        if shards:
            self._concluding[transaction] = set(shards)
        for number in shards:
            self._shards[number].conclude(transaction, attempts)

    def _on_counts(self, preparation: _Preparation, number: int, counts: list[int] | Refusal) -> None:
        preparation.missing.discard(number)
        refusal = self._flaw(preparation, self._shards[number].name, counts)
        if refusal is None and preparation.missing:
            return
        transaction = preparation.command.number
        del self._preparations[transaction]
        for other in preparation.missing:
            self._shards[other].prepare_no_longer(transaction)
        preparation.prepared(refusal)

    def _flaw(self, preparation: _Preparation, shard: str, counts: list[int] | Refusal) -> RequestError | None:
        """Why there is no commit, as far as one can say now."""
        if isinstance(counts, Refusal):
            return request_error(counts.code, f"{shard}: {counts.text}")
        command = preparation.command
        what = f"of transaction {command.number} ('{command.name}')"
        if NOT_SEALED in counts:
            attempt, _ = command.attempts[counts.index(NOT_SEALED)]
            return PreconditionFailed(
                f"attempt {attempt} {what} is not sealed on {shard}, and may still take "
                "messages; seal it, then commit what its seal tells"
            )
        preparation.sums = [total + count for total, count in zip(preparation.sums, counts, strict=True)]
        if preparation.missing:
            return None
        for (attempt, claimed), total in zip(command.attempts, preparation.sums, strict=True):
            if total != claimed:
                return PreconditionFailed(
                    f"attempt {attempt} {what} has {total} messages, and the commit names "
                    f"{claimed}; commit what its seal tells, or abort"
                )
        return None
