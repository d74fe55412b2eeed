"""What happens to a replica."""

import msgspec

from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Message
from shardmq.replication.core.note import Edits, Key


class Tick(msgspec.Struct, frozen=True):
    """Time has passed: due at `Replica.wake` at the latest."""


class Received(msgspec.Struct, frozen=True):
    """A message came from another replica."""

    sender: str
    message: Message


class LinkLost(msgspec.Struct, frozen=True):
    """What was sent to a replica, or by it, may be lost."""

    peer: str


class Durable(msgspec.Struct, frozen=True):
    """All commits up to a serial number are on disk."""

    serial: int


class KeysRead(msgspec.Struct, frozen=True):
    """Answer to ReadKeys: an edit for each key, with None where there is no such row."""

    request: int
    edits: Edits


class RangeRead(msgspec.Struct, frozen=True):
    """Answer to ReadRange.

    Attributes:
        edits: the rows.
        end: first key behind those that were read; None where there are no more.
        bytes: of the rows, as far as they were counted.
    """

    request: int
    edits: Edits
    end: Key | None
    bytes: int = 0


class ReadFailed(msgspec.Struct, frozen=True):
    """Answer to ReadKeys or ReadRange: the rows cannot be sent.

    Attributes:
        is_too_much: they are more than one message may have; a row is damaged otherwise.
    """

    request: int
    is_too_much: bool


class StoreFull(msgspec.Struct, frozen=True):
    """The disk has no room for records."""


class StoreFreed(msgspec.Struct, frozen=True):
    """The disk has room again."""


class Leave(msgspec.Struct, frozen=True):
    """The process is about to end: it takes no records any more, and nobody is to wait for it."""


class GroupRead(msgspec.Struct, frozen=True):
    """The group's key was read, in answer to ReadGroup."""

    revision: int
    group: Group


class GroupSeen(msgspec.Struct, frozen=True):
    """The watch on the group's key brought a change."""

    revision: int
    group: Group


class ReadLost(msgspec.Struct, frozen=True):
    """A read of the group's key was not answered."""


class Swapped(msgspec.Struct, frozen=True):
    """The swap took place, and the key has this revision now."""

    revision: int


class SwapRefused(msgspec.Struct, frozen=True):
    """The swap did not take place: the key had changed, to this."""

    revision: int
    group: Group


class SwapLost(msgspec.Struct, frozen=True):
    """The swap was not answered. It took place, or did not, or will."""


class Propose(msgspec.Struct, frozen=True):
    """Edits to be replicated.

    Attributes:
        number: the proposer's own, for the answer.
        is_publish: whether it takes something new in, which is refused with too few replicas in sync.
    """

    number: int
    edits: Edits
    is_publish: bool = True


class Transfer(msgspec.Struct, frozen=True):
    """An operator's command: let another member of the in-sync set lead."""

    to: str


class Move(msgspec.Struct, frozen=True):
    """An operator's command: have a replica on another host instead, with a whole in-sync set all the way."""

    source: str
    target: str


class ElectUnclean(msgspec.Struct, frozen=True):
    """An operator's command: lead, though records that were released may be lost.

    Attributes:
        incarnation: the group's new one, never used before.
    """

    incarnation: str


Event = (
    Tick
    | Received
    | LinkLost
    | Durable
    | KeysRead
    | RangeRead
    | ReadFailed
    | StoreFull
    | StoreFreed
    | Leave
    | GroupRead
    | GroupSeen
    | ReadLost
    | Swapped
    | SwapRefused
    | SwapLost
    | Propose
    | Transfer
    | Move
    | ElectUnclean
)
