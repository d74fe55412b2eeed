"""A change of one key in etcd, which takes effect if the key is still as it was when the step was planned."""

from dataclasses import dataclass

from shardmq.replication.core.group import Group
from shardmq.replication.etcd.values import StoreFormat, Wish


@dataclass(frozen=True, slots=True)
class GroupStep:
    """A new group, or another value of one.

    Attributes:
        name: of the group.
        before: None for a new group.
        after: its value then.
        reason: for the log.
    """

    name: str
    before: Group | None
    after: Group
    reason: str


@dataclass(frozen=True, slots=True)
class WishStep:
    """Another wish for a group.

    Attributes:
        name: of the group.
        before: None where there is none.
        after: the wish.
        reason: for the log.
    """

    name: str
    before: Wish | None
    after: Wish
    reason: str


@dataclass(frozen=True, slots=True)
class FormatStep:
    """Another format of all stores.

    Attributes:
        before: that of the first stores that replicas had, where etcd has none.
        after: the format then.
        reason: for the log.
        name: "", as there is one.
    """

    before: StoreFormat
    after: StoreFormat
    reason: str
    name: str = ""


Step = GroupStep | WishStep | FormatStep
