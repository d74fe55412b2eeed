"""Topics by the offsets of their messages, and the offsets of groups.

pull ─► messages, and the offset to read on from ─► pull …          nothing changes
commit ─► the group's offset moves on       offsets ─► where it is       reset ─► it goes on elsewhere
"""

from typing import Annotated, Literal

from msgspec import Meta

from shardmq.limits import PULL_BYTES, PULL_BYTES_MAX, PULL_WAIT_MS_MAX, RECORD_BATCH_RECORDS_MAX
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name
from shardmq.protocol.native.operations.reads import Position

Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""The number of a partition in its topic, from 0."""

Begin = Literal["first", "last", "next", "offset", "time"]
"""Where a reader begins: at the oldest message, the newest batch, the next one to come, an offset, or a time."""


class TopicPull(ClientRequest, frozen=True):
    """Read messages of a partition, and change nothing. A stream is a topic whose only partition is 0.

    It begins at an offset, or at the first message that came at a time (ms since 1970) or later; `number` says which.
    With `tags`, only messages with one of these are read. While there is none, the answer waits `wait_ms` at most; what
    comes behind on the channel does not wait for it.

    The answer is Ok: `{"deliveries", "next", "first", "end"}`. Deliveries are tables with the fields of BasicDeliver
    (consumer "", tag 0); there is one message at least if there is one. `next` is the offset to read on from, and the
    partition keeps offsets [first, end). An offset outside of that, other than `end`, is refused (416).
    """

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    partition: Partition
    begin: Begin
    number: Position = 0
    count: Annotated[int, Meta(ge=1, le=RECORD_BATCH_RECORDS_MAX)] = 10
    bytes_max: Annotated[int, Meta(ge=1, le=PULL_BYTES_MAX)] = PULL_BYTES
    wait_ms: Annotated[int, Meta(ge=0, le=PULL_WAIT_MS_MAX)] = 0
    tags: list[str] | None = None
    has_untagged: bool = False


class GroupCommit(ClientRequest, frozen=True):
    """Move a group's offsets on: all messages below them are acknowledged. The answer is Ok, once that is on disk.

    `offsets` are (partition, offset of the message that the group reads next). They never go back (406). Members commit
    on a channel of their own connection; while a partition has another owner, nobody else does (406).
    """

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    group: Name
    offsets: list[tuple[Partition, Position]]


class GroupOffsets(ClientRequest, frozen=True):
    """Ask where a group is. The answer is Ok: a list of tables, one for each partition, in order.

    What was acknowledged before on the same channel is counted, and on disk.

    With `partitions`, only these are told of, and asked. Where consumers of a shared group on the channel are meant,
    only those of them are told of in which these have acknowledged something since it was asked for. Servers that do
    not say `partition_offsets` in the answer to ConnectionOpen do not know the field.
    """

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    group: Name
    partitions: list[Partition] | None = None


class GroupReset(ClientRequest, frozen=True):
    """Have a group go on elsewhere, in some `partitions` or all. The answer is Ok: `[[partition, old, new], ...]`.

    `begin` and `number` say where, as in TopicPull; `old` is nil where the group has not read the partition. With
    `dry_run` nothing changes. Members go on from there; what they acknowledge of earlier deliveries has no effect.
    """

    after_loss = AfterLoss.ASK_AGAIN

    topic: Name
    group: Name
    begin: Begin
    number: Position = 0
    partitions: list[Partition] | None = None
    dry_run: bool = False


class GroupDelete(ClientRequest, frozen=True):
    """Forget a group's offsets. The answer is Ok; refused (406) while it has members."""

    after_loss = AfterLoss.ASK_AGAIN
    is_done_where_missing = True

    topic: Name
    group: Name
