"""Whether enough replicas have what an answer would promise.

A declaration promises that something is there, a commit that a transaction's messages are: whether a command changes
anything or finds it done. While too few replicas are in sync nothing is promised, but what enough of them had before.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from shardmq.coordinator.state.pending_command import Name, PendingCommand, names_in
from shardmq.errors import Unavailable
from shardmq.topology.changes import Change
from shardmq.topology.commands import (
    AbortTransaction,
    BeginTransaction,
    Bind,
    Command,
    CommitTransaction,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    ExtendTopic,
    PutLimits,
    PutParameter,
    PutPermission,
    PutPolicy,
    PutTopicPermission,
    PutUser,
    PutVhost,
)

_PROMISING: Final = (
    BeginTransaction,
    Bind,
    CommitTransaction,
    DeclareExchange,
    DeclareQueue,
    DeclareTopic,
    ExtendTopic,
    PutLimits,
    PutParameter,
    PutPermission,
    PutPolicy,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
"""Commands whose answer says that something is there, and stays. What is removed may be removed again."""

_TELLING: Final = (*_PROMISING, AbortTransaction)
"""Commands whose answer may say so. Who aborts what was committed is told that it was."""


class Promises:
    """What commands changed that the other replicas may not have yet.

    Args:
        index: tells the index of the last record in the group's log; None in a broker on one host, whose one disk has
            all that is answered.
        is_sure: whether all that was there at the start is known to be on the disks of enough replicas.

    Attributes:
        refusal: why nothing is promised: too few replicas are in sync; "" where enough are.
    """

    def __init__(self, index: Callable[[], int] | None = None, is_sure: bool = True) -> None:
        self._index = index
        self.refusal = ""
        self._decided: list[Sequence[Name]] = []  # in this pass; () is anything
        self._unreleased: deque[tuple[int, list[Sequence[Name]]]] = deque()
        if index is not None and not is_sure:
            self._unreleased.append((index(), [()]))

    @property
    def is_in_doubt(self) -> bool:
        """Whether something is here that too few replicas may have."""
        return bool(self.refusal and self._unreleased)

    def look(self, refusal: str, released: int) -> bool:
        """Take in how the replicas are now.

        Args:
            refusal: why nothing is promised; "" where enough are in sync.
            released: index up to which all that are in sync have everything.

        Returns:
            Whether something was in doubt, and no longer is.
        """
        was_in_doubt, self.refusal = self.is_in_doubt, refusal
        while self._unreleased and not refusal and self._unreleased[0][0] <= released:
            self._unreleased.popleft()
        return was_in_doubt and not refusal

    def may_lack(self, command: Command) -> bool:
        """Whether what a command finds done may be on too few disks to be answered by it."""
        return bool(self.refusal) and isinstance(command, _TELLING) and self._are_unreleased(names_in(command))

    def check(self, command: Command, changes: Sequence[Change] = ()) -> None:
        """Make sure that a command may be answered.

        Args:
            command: what is asked.
            changes: what it would change; empty where it finds everything done, or that is not known yet.

        Raises:
            Unavailable: too few replicas are in sync, or may have what the command finds.
        """
        is_adding = bool(changes) and isinstance(command, _PROMISING)
        if self.refusal and (is_adding or self.may_lack(command)):
            raise Unavailable(self.refusal)

    def decided(self, pending: PendingCommand, changes: Sequence[Change]) -> None:
        """Note what a command changes, which `written` follows."""
        if self._index is not None and changes and isinstance(pending.command, _PROMISING):
            self._decided.append(pending.names)

    def written(self) -> None:
        """Note that what was decided is in the group's log."""
        if self._index is not None and self._decided:
            self._unreleased.append((self._index(), self._decided))
            self._decided = []

    def _are_unreleased(self, names: Sequence[Name]) -> bool:
        """Whether other replicas may not have what has these names; where there are none, what is on its way at all."""
        unreleased = [each for _, decided in self._unreleased for each in decided]
        return any(not each or not names or not set(each).isdisjoint(names) for each in unreleased)
