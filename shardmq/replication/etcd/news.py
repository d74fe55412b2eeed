"""What the register on a thread of its own tells the loop of its process."""

from dataclasses import dataclass
from typing import Any

from shardmq.replication.core.events import GroupRead, GroupSeen, ReadLost, SwapLost, Swapped, SwapRefused
from shardmq.replication.etcd.errors import EtcdError
from shardmq.replication.etcd.register import Entry
from shardmq.replication.etcd.values import Kind


@dataclass(frozen=True, slots=True)
class ForGroup:
    """Something for the replica core of a group.

    Attributes:
        group: its name.
        event: answer to `read` or `swap`, or what `watch_group` has seen.
    """

    group: str
    event: GroupRead | ReadLost | Swapped | SwapRefused | SwapLost | GroupSeen


@dataclass(frozen=True, slots=True)
class Seen:
    """What a watched kind has that is new: at first all there is, which may be nothing."""

    kind: Kind[Any]
    entries: tuple[Entry[Any], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """All values of a kind, by name."""

    kind: Kind[Any]
    entries: tuple[Entry[Any], ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """What was wanted of a value holds.

    Attributes:
        kind: of the value.
        name: of the host or group.
        entry: what the key has now.
        changed: whether it was changed for that.
    """

    kind: Kind[Any]
    name: str
    entry: Entry[Any]
    changed: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """A list or a change came to nothing; a change whose answer was lost may still take effect."""

    kind: Kind[Any]
    name: str
    error: EtcdError


News = ForGroup | Seen | Listed | Stored | Failed
