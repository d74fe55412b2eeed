"""The value of a group's key in etcd, and the changes it knows. Each change is one compare-and-swap."""

import msgspec


class Group(msgspec.Struct, frozen=True):
    """Who leads a replica group, and who holds all that was released.

    Attributes:
        incarnation: another one since an operator elected a primary that may lack what was released.
        term: goes up with every election and transfer.
        primary: name of the replica that leads the term.
        in_sync: replicas that hold all that was released; never empty.
        replicas: all replicas. Those that are not in sync are learners.
        min_in_sync: with fewer in sync, publishes are refused.
    """

    incarnation: str
    term: int
    primary: str
    in_sync: tuple[str, ...]
    replicas: tuple[str, ...]
    min_in_sync: int = 1

    def elected(self, name: str, promised: int = 0) -> "Group":
        """Return the group after a campaign: the primary of before leaves the set, unless it is elected itself.

        Args:
            name: who campaigns.
            promised: a term that it promised; higher than the group's own where etcd was restored from a snapshot.
        """
        in_sync = tuple(member for member in self.in_sync if member == name or member != self.primary)
        return msgspec.structs.replace(self, term=max(self.term, promised) + 1, primary=name, in_sync=in_sync)

    def shrunk(self, name: str) -> "Group":
        """Return the group without a member of the in-sync set.

        Raises:
            ValueError: it is the last one.
        """
        in_sync = tuple(member for member in self.in_sync if member != name)
        if not in_sync:
            raise ValueError(f"{name} is the last replica in sync; without it nothing that was released is left")
        return msgspec.structs.replace(self, in_sync=in_sync)

    def grown(self, name: str) -> "Group":
        """Return the group with one more replica in sync."""
        return msgspec.structs.replace(self, in_sync=(*self.in_sync, name))

    def transferred(self, name: str) -> "Group":
        """Return the group after its primary handed over to another member of the in-sync set."""
        return msgspec.structs.replace(self, term=self.term + 1, primary=name)

    def with_replica(self, name: str) -> "Group":
        """Return the group with one more learner."""
        return msgspec.structs.replace(self, replicas=(*self.replicas, name))

    def without_replica(self, name: str) -> "Group":
        """Return the group without a learner."""
        return msgspec.structs.replace(self, replicas=tuple(member for member in self.replicas if member != name))

    def elected_unclean(self, name: str, incarnation: str, promised: int = 0) -> "Group":
        """Return the group led by a replica that may lack what was released, and promised a term."""
        term = max(self.term, promised) + 1
        return msgspec.structs.replace(self, incarnation=incarnation, term=term, primary=name, in_sync=(name,))
