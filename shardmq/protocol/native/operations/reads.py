"""The operations by which a queue is read in parallel: looked at without a trace, or reserved, read and acknowledged.

slices ─► read … by as many clients as there are                             nothing changes
reserve ─► slices ─► read … ─► reservation.end: acknowledged, or back to its place
"""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import DELAY_MS_MAX, RUN_RECORDS_MAX, SLICES_MAX
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name

Position = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A message's number in its queue, or the one behind it."""


class QueueSlices(ClientRequest, frozen=True):
    """Cuts what is ready now, or reserved under that name, into about `count` parts of one size. Answered by Ok:
    `[[first, end, messages], ...]`, half-open ranges of message numbers, rising.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    count: Annotated[int, Meta(ge=1, le=SLICES_MAX)]
    reservation: Name = ""


class QueueRead(ClientRequest, frozen=True):
    """Looks at the messages numbered [first, end) that are ready, or reserved under that name, and leaves all as it is.
    Answered by Ok: `{"deliveries", "next"}`: a list of tables with the fields of BasicDeliver (consumer "", tag 0) and
    `first`, the number of its first message; and where to read on, nil at the end.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    first: Position
    end: Position
    count: Annotated[int, Meta(ge=1, le=RUN_RECORDS_MAX)]
    reservation: Name = ""


class QueueReserve(ClientRequest, frozen=True):
    """Sets the first ready messages aside under a name, `messages_max` at most (0: all there are), for `lease_ms` (0:
    an hour); after that they are back at their place. Answered by Ok: `{"messages", "state"}`, state being "held", or
    "acknowledged" where that name was. A name that is there keeps what it has, and its time begins anew.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    reservation: Name
    messages_max: Position = 0
    lease_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0


class ReservationEnd(ClientRequest, frozen=True):
    """With `acknowledge` what is reserved is done with, of it only `ranges` ([first, end), rising) if there are any;
    refused (404) where nothing is. Without, what is left of it returns to its place. Answered by Ok: `{"messages"}`.
    """

    after_loss = AfterLoss.ASK_AGAIN

    queue: Name
    reservation: Name
    acknowledge: bool
    ranges: list[tuple[Position, Position]] = []
