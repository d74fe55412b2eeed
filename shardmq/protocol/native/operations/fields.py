"""The base of operations, and the types of their fields."""

from enum import Enum
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from shardmq.limits import CHANNELS_MAX, NAME_BYTES_MAX

Request = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a request; the numbers of a connection rise."""

Channel = Annotated[int, Meta(ge=0, le=CHANNELS_MAX)]
"""The number of a channel; 0 is the connection."""

Tag = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""A delivery tag."""

Name = Annotated[str, Meta(max_length=NAME_BYTES_MAX)]
"""The name of a queue, exchange or the like, or a routing key."""

Arguments = dict[str, Any]
"""A table of x-arguments."""

TagRanges = list[tuple[Tag, Tag]]
"""Ranges of delivery tags or request numbers, [first, last], both included."""


class Operation(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True, gc=False):
    """What a frame means; the payload is the array of the fields."""


class AfterLoss(Enum):
    """What becomes of a request that was under way when its connection was lost."""

    UNKNOWN = "it may have been carried out or not, and is not asked twice"
    ASK_AGAIN = "carrying it out twice does no harm"
    DONE = "the loss of the connection has carried it out"


class ClientRequest(Operation, frozen=True):
    """An operation that a client sends on a channel and that is answered by Ok or Refused.

    Attributes:
        request: its number, rising over all requests of the connection; 0 until it is sent.
        channel: number of the channel; 0 until it is sent.
    """

    request: Request
    channel: Channel

    after_loss: ClassVar[AfterLoss] = AfterLoss.UNKNOWN
    is_done_where_missing: ClassVar[bool] = False
    """Whether NOT_FOUND, as the answer to asking again, means that the first time it was carried out."""
    only_reads: ClassVar[bool] = False
    """Whether carrying it out changes nothing: where that fails as nobody expected, it is refused, and nobody else
    notices."""

    def may_be_asked_again(self) -> bool:
        """Whether a client whose connection was lost before the answer came may ask again over the next one."""
        return self.after_loss is AfterLoss.ASK_AGAIN
