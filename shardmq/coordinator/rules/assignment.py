"""Which member of a consumer group should have which partition: balanced, with as few moves as that takes.

    0 1 2 3 4 5           B joins     0 1 2 │ 3 4 5       C joins     0 1 │ 3 4 │ 5 2
    A A A A A A                       A A A │ B B B                   A A │ B B │ C C

The members' counts differ by one at most. A partition moves only where its member has left, or has more than its share.
"""

from collections.abc import Iterable, Sequence


class Assignment:
    """The members of a group, its partitions, and who should have which. Says nothing of who has them now."""

    __slots__ = ("_by_count", "_members", "_moved", "_owners", "_unowned")

    def __init__(self) -> None:
        self._owners: dict[int, str | None] = {}
        self._members: dict[str, dict[int, None]] = {}  # in the order in which they were given
        self._by_count: dict[int, dict[str, None]] = {}
        self._unowned: dict[int, None] = {}
        self._moved: dict[int, None] = {}

    @property
    def members(self) -> Sequence[str]:
        """Everybody who is in the group, in the order of joining."""
        return list(self._members)

    @property
    def partitions(self) -> Sequence[int]:
        """Every partition of the group."""
        return list(self._owners)

    def has(self, partition: int) -> bool:
        """Whether the group has a partition."""
        return partition in self._owners

    def owner(self, partition: int) -> str | None:
        """Who should have a partition; None for nobody."""
        return self._owners.get(partition)

    def of(self, member: str) -> Sequence[int]:
        """The partitions that a member should have."""
        return list(self._members[member])

    def add(self, partition: int) -> None:
        """Add a partition, which nobody has yet."""
        if partition not in self._owners:
            self._owners[partition] = None
            self._unowned[partition] = None

    def remove(self, partition: int) -> None:
        """Take out a partition that is gone."""
        if partition in self._owners:
            self._take(partition)
            del self._owners[partition], self._unowned[partition]
            self._moved.pop(partition, None)

    def join(self, member: str, held: Iterable[int] = ()) -> None:
        """Add a member; what it holds already stays its own, where nobody else has it."""
        if member not in self._members:
            self._members[member] = {}
            self._by_count.setdefault(0, {})[member] = None
        for partition in held:
            if partition in self._unowned:
                self._give(partition, member)

    def leave(self, member: str) -> None:
        """Take out a member; what it had is nobody's."""
        for partition in self.of(member):
            self._take(partition)
        del self._members[member]
        self._uncount(member, 0)

    def balance(self) -> list[int]:
        """Give out what is nobody's, and move what one member has too many.

        Returns:
            The partitions that have another owner than after the last call.
        """
        if self._members:
            for partition in list(self._unowned):
                self._give(partition, self._one_with(min(self._by_count)))
            while max(self._by_count) - min(self._by_count) > 1:
                rich, poor = self._one_with(max(self._by_count)), self._one_with(min(self._by_count))
                latest = next(reversed(self._members[rich]))
                self._take(latest)
                self._give(latest, poor)
        moved, self._moved = self._moved, {}
        return list(moved)

    def _one_with(self, count: int) -> str:
        return next(iter(self._by_count[count]))

    def _give(self, partition: int, member: str) -> None:
        held = self._members[member]
        self._uncount(member, len(held))
        del self._unowned[partition]
        held[partition] = None
        self._owners[partition] = member
        self._by_count.setdefault(len(held), {})[member] = None
        self._moved[partition] = None

    def _take(self, partition: int) -> None:
        """Make a partition nobody's."""
        member = self._owners[partition]
        if member is None:
            return
        held = self._members[member]
        self._uncount(member, len(held))
        del held[partition]
        self._by_count.setdefault(len(held), {})[member] = None
        self._owners[partition] = None
        self._unowned[partition] = None
        self._moved[partition] = None

    def _uncount(self, member: str, count: int) -> None:
        there = self._by_count[count]
        del there[member]
        if not there:
            del self._by_count[count]
