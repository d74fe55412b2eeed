"""Topics by the offsets of their messages.

pull ─► messages, and the offset to read on from ─► pull …          nothing changes
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
