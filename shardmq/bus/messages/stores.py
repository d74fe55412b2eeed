"""What the processes say of their stores: whose they are, and when they are copied."""

from typing import Any, ClassVar

from shardmq.bus.messages.base import BusMessage, Request


class Enroll(Request[None], frozen=True, tag=90):
    """To a shard that is recognised: this is its broker, and the coordinator's generation. Answered once it is on disk;
    what follows it is carried out after it.
    """

    broker: str
    generation: int


class Expel(BusMessage, frozen=True, tag=91):
    """To a shard whose store is not the one that belongs here, and why: it refuses to go on."""

    text: str


class Hold(Request[None], frozen=True, tag=92):
    """Carry out nothing that gateways say before a Copy comes, or some seconds are over. Answered by nil."""

    may_repeat: ClassVar[bool] = False


class Copy(Request[None], frozen=True, tag=93):
    """Copy the store as it is now into `folder`, and go on. Answered by nil once it is settled what is copied; Copying
    tells how far that is.
    """

    may_repeat: ClassVar[bool] = False
    folder: str
    bytes_per_second: int


class Identity(BusMessage, frozen=True, tag=94):
    """To the coordinator, first thing in a session: whose the shard's store is.

    `broker` is "" for one that was never enrolled; `generation` is the newest coordinator's it heard of; `queue` the
    highest id of a durable queue it was ever given; `is_adopted` where it was made before stores knew of themselves;
    `queues` are (id, vhost, name) of its durable queues.
    """

    store: str
    shard: int
    broker: str
    generation: int
    queue: int
    is_adopted: bool
    queues: list[tuple[int, str, str]]


class Copying(BusMessage, frozen=True, tag=95):
    """To the coordinator: how far the copy of the store is; at its end with its files as (name, bytes, checksum), or
    with why there is none.
    """

    done: int
    total: int
    files: list[tuple[str, int, str]] = []
    fault: str = ""


class BeginBackup(Request[None], frozen=True, tag=96):
    """Copy all stores into folders of `folder`. Answered by nil once it is settled what is in the copy."""

    folder: str
    bytes_per_second: int


class LookBackup(Request[dict[str, Any]], frozen=True, tag=97):
    """Answer: how far the last backup is, as a table."""
