"""Two-phase commit: all shards are asked before, and told after.

    prepare ─► counts of every shard ─► sums as the commit claims? ─► prepared
    follow  ─► every shard, in every session, until it has answered ─► followed

A preparation may be given up and begun again. A decision is final and in the store.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from shardmq.coordinator.links.shard import ShardLink
from shardmq.coordinator.storage.transactions import Decision
from shardmq.errors import PreconditionFailed, RequestError, StillPreparing, Unavailable, request_error
from shardmq.topology.changes import TransactionEnded
from shardmq.topology.commands import CommitTransaction

NOT_SEALED: Final = -1
"""What a shard counts for an attempt that may still take messages."""

OnPrepared = Callable[[RequestError | None], None]
"""Called with None when every shard is prepared, or with the error that refuses the commit."""


@dataclass(slots=True, eq=False)
class _Preparation:
    """A commit that waits for its shards' counts.

    Attributes:
        command: what it claims.
        sums: messages counted so far, by attempt in the command's order.
        missing: shards that have not answered.
        on_prepared: called with the outcome.
    """

    command: CommitTransaction
    sums: list[int]
    missing: set[int]
    on_prepared: OnPrepared


class TwoPhaseCommit:
    """Has all shards prepare a transaction, and follow what was decided.

    Args:
        shards: the links to all shards, by number.
        decisions: of an earlier life of this process, by transaction. Shards that have not followed are told again.
    """

    def __init__(self, shards: Sequence[ShardLink], decisions: Mapping[int, Decision]) -> None:
        self._shards = shards
        self._preparations: dict[int, _Preparation] = {}
        self._following: dict[int, set[int]] = {}  # by transaction, the shards that have yet to follow
        for number, decision in decisions.items():
            here = [shard for shard in decision.shards if shard < len(shards)]
            self._follow(number, decision.attempts, here)

    @property
    def following(self) -> int:
        """How many decisions some shard has yet to follow."""
        return len(self._following)

    def prepare(self, command: CommitTransaction, on_prepared: OnPrepared) -> None:
        """Ask all shards whether a commit's attempts are complete. A transaction has one commit at a time.

        Args:
            command: what is to be committed.
            on_prepared: called once, unless `give_up` or `ignore` comes before.
        """
        attempts = [attempt for attempt, _ in command.attempts]
        missing = set(range(len(self._shards)))
        preparation = _Preparation(command, [0] * len(attempts), missing, on_prepared)
        self._preparations[command.number] = preparation
        for number, shard in enumerate(self._shards):
            shard.transactions.prepare(command.number, attempts, partial(self._on_counted, preparation, number))

    def give_up(self, command: CommitTransaction) -> Unavailable:
        """Wait no more for a commit's shards.

        Returns:
            The error that says why; StillPreparing where all that have not answered get on.
        """
        missing = [self._shards[number] for number in sorted(self._preparations[command.number].missing)]
        progress = {shard.name: shard.transactions.progress(command.number) for shard in missing}
        self.ignore(command.number)
        told = [each for each in progress.values() if each is not None]
        if len(told) == len(missing):
            read, staged = sum([each.read for each in told]), sum([each.staged for each in told])
            return StillPreparing.of(list(progress), command.name, read, staged)
        silent = [shard for shard in missing if progress[shard.name] is None]
        away = next((shard for shard in silent if not shard.is_open), None)
        if away is not None:
            return Unavailable(
                f"{away.name} is not reachable, and every shard has to say what it has of transaction "
                f"'{command.name}'; nothing is decided, commit it again when the shard is back"
            )
        return Unavailable(
            f"{silent[0].name} has not said in time what it has of transaction '{command.name}'; nothing is decided, "
            "look whether that shard works (`shardmq status`), and commit it again"
        )

    def ignore(self, transaction: int) -> None:
        """Wait no more for a commit's shards. They go on reading; where it is committed again, from there."""
        for number in self._preparations.pop(transaction).missing:
            self._shards[number].transactions.ignore_prepare(transaction)

    def follow(self, ended: TransactionEnded) -> None:
        """Send a decision to all shards, now or when they are back."""
        self._follow(ended.number, ended.attempts, range(len(self._shards)))

    def is_followed(self, transaction: int) -> bool:
        """Whether all shards have followed the decision on a transaction."""
        return transaction not in self._following

    def take_followed(self) -> list[tuple[int, int]]:
        """The transactions that shards have followed since the last call, and which shard each."""
        followed = [
            (transaction, number)
            for number, shard in enumerate(self._shards)
            for transaction in shard.transactions.take_followed()
        ]
        for transaction, number in followed:
            missing = self._following[transaction]
            missing.discard(number)
            if not missing:
                del self._following[transaction]
        return followed

    def _follow(self, transaction: int, attempts: list[int], shards: Sequence[int]) -> None:
        if shards:
            self._following[transaction] = set(shards)
        for number in shards:
            self._shards[number].transactions.follow(transaction, attempts)

    def _on_counted(self, preparation: _Preparation, number: int, counts: list[int] | RequestError) -> None:
        preparation.missing.discard(number)
        error = self._check(preparation, self._shards[number].name, counts)
        if error is None and preparation.missing:
            return
        transaction = preparation.command.number
        del self._preparations[transaction]
        for other in preparation.missing:
            self._shards[other].transactions.ignore_prepare(transaction)
        preparation.on_prepared(error)

    def _check(self, preparation: _Preparation, shard: str, counts: list[int] | RequestError) -> RequestError | None:
        """The reason why the commit is refused, as far as the counts tell; None where there is none."""
        if isinstance(counts, RequestError):
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
