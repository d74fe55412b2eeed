"""Messages about stores: which broker they belong to, and their backup."""

from typing import Any, ClassVar

import msgspec

from shardmq.bus.messages.base import BusMessage, Request


class Enroll(Request[None], frozen=True, tag=90):
    """Tell an accepted shard its broker and the coordinator's generation. Answered once they are on disk.

    The shard carries out later messages after that.
    """

    broker: str
    generation: int


class Expel(BusMessage, frozen=True, tag=91):
    """Tell a shard that its store is not the one that belongs here, and why. The shard stops."""

    text: str


class LinkedGateways(msgspec.Struct, array_like=True, frozen=True):
    """The gateways that have a session with a shard.

    Attributes:
        seconds: for which it has taken calls.
        names: of the gateways.
    """

    seconds: float
    names: list[str]


class ListGateways(Request[LinkedGateways], frozen=True, tag=104):
    """Ask a shard which gateways have a session with it.

    Attributes:
        fenced: gateways whose sessions it ends before, and for which it opens none until others are named; None where
            it stays with those that were named before.
    """

    fenced: list[str] | None = None


class Recorded(BusMessage, frozen=True, tag=99):
    """Tell a shard that the queues it was assigned, up to the id `queue`, are on the coordinator's disk.

    Until then, or until something is to be written for it, which proves the same, the shard writes nothing of a new
    queue. One of an earlier session that was not assigned again before this was lost with the coordinator that told it,
    and nobody knows it: the shard forgets it.
    """

    queue: int


class Hold(Request[None], frozen=True, tag=92):
    """Carry out no message of gateways until a Copy comes, or some seconds have passed. Answer: nil."""

    may_repeat: ClassVar[bool] = False


class Copy(Request[None], frozen=True, tag=93):
    """Copy the store as it is now into `folder`, while the shard goes on.

    Answered by nil once the content of the copy is fixed. Copying reports the progress.
    """

    may_repeat: ClassVar[bool] = False
    folder: str
    bytes_per_second: int


class Identity(BusMessage, frozen=True, tag=94):
    """Tells the coordinator which broker the shard's store belongs to; the first message of a session.

    Attributes:
        store: the store's id.
        shard: the shard's number.
        broker: the broker's id; "" for a store that was never enrolled.
        generation: of the newest coordinator that the shard has heard of.
        queue: the highest id of a durable queue that it was ever assigned.
        is_adopted: whether the store was made by a version that did not record this.
        queues: (id, vhost, name) of its durable queues.
        transaction: the highest number of a transaction that it knows; 0 for none, and from earlier versions.
    """

    store: str
    shard: int
    broker: str
    generation: int
    queue: int
    is_adopted: bool
    queues: list[tuple[int, str, str]]
    transaction: int = 0


class ChangeWatermarks(Request[None], frozen=True, tag=98):
    """Set the watermarks of the shard's memory and disk, until it ends; None leaves one as it is. Answer: nil."""

    memory_bytes: int | None
    disk_free_bytes: int | None


class Copying(BusMessage, frozen=True, tag=95):
    """Tells the coordinator how far the copy of the shard's store is.

    Attributes:
        done: bytes copied.
        total: bytes to copy.
        files: (name, bytes, checksum), once the copy is complete.
        fault: why there is no copy; "" while there is no fault.
    """

    done: int
    total: int
    files: list[tuple[str, int, str]] = []
    fault: str = ""


class BeginBackup(Request[None], frozen=True, tag=96):
    """Copy all stores into subfolders of `folder`. Answered by nil once the content of the copy is fixed.

    Asked again, it would be refused because of the backup that it began itself.
    """

    may_repeat: ClassVar[bool] = False
    folder: str
    bytes_per_second: int


class LookBackup(Request[dict[str, Any]], frozen=True, tag=97):
    """Ask how far the last backup is. Answer: a table."""


StoreRequest = Enroll | Hold | Copy | ChangeWatermarks | ListGateways
"""What the coordinator asks shards beside what concerns queues."""
