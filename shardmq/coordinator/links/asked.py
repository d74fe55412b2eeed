"""What a shard was asked and has not answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shardmq.bus.messages.transactions import PreparationProgress
from shardmq.errors import RequestError

WENT_AWAY: Final = "it went away"
"""What became of a shard's part in a backup, behind the shard's name."""

OnDone = Callable[[RequestError | None], None]
"""Called with None when the shard has done it, or with the error."""

OnCounted = Callable[[list[int] | RequestError], None]
"""Called with how many messages each attempt has on the shard, or with the refusal."""


@dataclass(slots=True, eq=False)
class Deletion:
    """A queue whose deletion is to be prepared."""

    if_unused: bool
    if_empty: bool
    on_prepared: OnDone


@dataclass(slots=True, eq=False)
class Preparation:
    """A transaction to be prepared.

    Attributes:
        attempts: that are to be committed.
        on_counted: called with the answer.
        progress: what the shard told last in this session of how far it is.
        told_at: when, monotonic seconds.
    """

    attempts: list[int]
    on_counted: OnCounted
    progress: PreparationProgress | None = None
    told_at: float = 0.0
