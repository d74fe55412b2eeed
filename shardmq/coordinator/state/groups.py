"""One ordered consumer group: who is in it, who has which partition, and what its members are still to be told.

    unowned ──granted──► held by A ──A is told──► revoked ──A has released it, or has left──► granted to B

A partition has one holder at a time, under an epoch that rises with each grant. The partition's shard ignores the acks
of older epochs, so a holder that is gone without a word does no harm.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from shardmq.bus.messages.membership import Held
from shardmq.coordinator.rules.assignment import Assignment


class Epochs:
    """Epochs of grants, each higher than all before, also those of earlier starts of the coordinator.

    Args:
        first: the lowest one.
    """

    __slots__ = ("_next",)

    def __init__(self, first: int) -> None:
        self._next = first

    def take(self) -> int:
        """The next one."""
        self._next += 1
        return self._next - 1

    def seen(self, epoch: int) -> None:
        """Give none from now on that is not higher than this one."""
        self._next = max(self._next, epoch + 1)


@dataclass(slots=True)
class _Holding:
    member: str
    epoch: int
    is_revoked: bool = False


@dataclass(slots=True)
class Notice:
    """What a member is to be told."""

    assigned: list[Held] = field(default_factory=list)
    revoked: list[int] = field(default_factory=list)


class Group:
    """One group.

    Args:
        partitions: ids of its queues.
        take_epoch: returns an epoch that nobody had before.
    """

    __slots__ = ("_assignment", "_held", "_holdings", "_notices", "_open", "_partitions", "_take_epoch")

    def __init__(self, partitions: Sequence[int], take_epoch: Callable[[], int]) -> None:
        self._assignment = Assignment()
        self._take_epoch = take_epoch
        self._holdings: dict[int, _Holding] = {}
        self._held: dict[str, set[int]] = {}  # by member
        self._open: dict[int, None] = {}  # partitions to look at
        self._notices: dict[str, Notice] = {}
        self._partitions: Sequence[int] = ()
        self.resize(partitions)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def members(self) -> Sequence[str]:
        """Everybody who is in the group."""
        return list(self._held)

    def resize(self, partitions: Sequence[int]) -> bool:
        """Have these partitions and no others. Who has one that is gone hears of it from its shard.

        Returns:
            Whether they are others than before.
        """
        if partitions == self._partitions:
            return False
        self._partitions = partitions
        wanted = dict.fromkeys(partitions)
        for partition in self._assignment.partitions:
            if partition not in wanted:
                self._assignment.remove(partition)
                self._free(partition)
                self._open.pop(partition, None)
        for notice in self._notices.values():  # nobody has been told of these yet
            notice.assigned = [held for held in notice.assigned if held[0] in wanted]
        for partition in wanted:
            self._assignment.add(partition)
        return True

    def join(self, member: str, held: Iterable[Held]) -> None:
        """Add a member, or take in what one says of itself that has lost its link meanwhile.

        Args:
            member: who it is.
            held: the partitions it has, with their epochs.
        """
        told = dict(held)
        believed = self._held.setdefault(member, set())
        for partition in list(believed):
            holding = self._holdings[partition]
            if told.get(partition) == holding.epoch:
                del told[partition]
                if holding.is_revoked:
                    self._notice(member).revoked.append(partition)
            elif holding.is_revoked and partition not in told:
                self._free(partition)
            else:  # the word of it was lost
                told.pop(partition, None)
                holding.is_revoked = False
                self._notice(member).assigned.append((partition, holding.epoch))
        for partition, epoch in told.items():
            self._claim(member, partition, epoch)
        self._assignment.join(member, sorted(believed))
        self._open.update(dict.fromkeys(believed))

    def leave(self, member: str) -> None:
        """Take out a member; what it had is free."""
        for partition in list(self._held.pop(member)):
            self._free(partition)
        self._assignment.leave(member)
        self._notices.pop(member, None)

    def released(self, member: str, held: Iterable[Held]) -> None:
        """Note that a member has partitions no longer."""
        for partition, epoch in held:
            holding = self._holdings.get(partition)
            if holding is not None and (holding.member, holding.epoch) == (member, epoch):
                self._free(partition)

    def settle(self) -> dict[str, Notice]:
        """Balance the group, and grant what is free.

        Returns:
            What its members are to be told.
        """
        self._open.update(dict.fromkeys(self._assignment.balance()))
        open_ones, self._open = self._open, {}
        for partition in open_ones:
            owner, holding = self._assignment.owner(partition), self._holdings.get(partition)
            if owner is None:
                continue
            if holding is None:
                epoch = self._take_epoch()
                self._hold(partition, owner, epoch)
                self._notice(owner).assigned.append((partition, epoch))
            elif holding.member != owner and not holding.is_revoked:
                holding.is_revoked = True
                self._notice(holding.member).revoked.append(partition)
        notices, self._notices = self._notices, {}
        return notices

    def _claim(self, member: str, partition: int, epoch: int) -> None:
        """Take in that a member has a partition that it is not known to have: the higher epoch has it."""
        holding = self._holdings.get(partition)
        if not self._assignment.has(partition) or (holding is not None and holding.epoch >= epoch):
            self._notice(member).revoked.append(partition)
            return
        if holding is not None:
            self._notice(holding.member).revoked.append(partition)
            self._free(partition)
        self._hold(partition, member, epoch)

    def _hold(self, partition: int, member: str, epoch: int) -> None:
        self._holdings[partition] = _Holding(member, epoch)
        self._held[member].add(partition)

    def _free(self, partition: int) -> None:
        holding = self._holdings.pop(partition, None)
        if holding is not None and holding.member in self._held:
            self._held[holding.member].discard(partition)
        self._open[partition] = None

    def _notice(self, member: str) -> Notice:
        return self._notices.setdefault(member, Notice())
