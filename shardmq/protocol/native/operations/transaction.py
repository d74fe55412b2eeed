"""Transactions over any number of queues: their messages appear whole or not at all.

begin ─► publish … (basic.publish with the transaction's number) ─► seal ─┬─► commit, naming the attempts that count
             └── one attempt each, by as many clients as there are ───────┴─► abort
"""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import ATTEMPTS_MAX, DELAY_MS_MAX, OFFSETS_FROM
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name
from shardmq.protocol.native.operations.offsets import Partition
from shardmq.protocol.native.operations.reads import Position

Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""The number of a transaction, which no other ever has."""

Attempt = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""The number of an attempt, which the client chooses at random."""

Attempts = Annotated[list[tuple[Attempt, Annotated[int, Meta(ge=0, le=2**63 - 1)]]], Meta(max_length=ATTEMPTS_MAX)]
"""Attempts with their numbers of messages."""


class TransactionBegin(ClientRequest, frozen=True):
    """Create a transaction, or begin the timeout of the open one anew. The answer is Ok: `{"number", "state"}`.

    `state` is "open", or "committed" if there is nothing left to do. The transaction is aborted when nobody has begun
    it for `timeout_ms` (0: 24 hours). With a `number`, only that transaction is meant: the request is refused (406) if
    it is over, so that a client that comes late creates none.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    timeout_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class TransactionSeal(ClientRequest, frozen=True):
    """Complete an attempt, once all its publishes are confirmed. The answer is Ok: `{"messages", "bytes"}`.

    They are what it has staged, counted once for each shard. The commit has to name this number of messages.
    """

    after_loss = AfterLoss.ASK_AGAIN

    number: Number
    attempt: Attempt


class TransactionOffsets(ClientRequest, frozen=True):
    """Stage the commit of a group's offsets: they take effect if the transaction is committed. The answer is Ok.

    `offsets` are (partition, offset of the message that the group reads next); the i-th has the number `sequence + i`
    of the attempt, which counts as a message when it is sealed. Refused (406) where a partition has another owner than
    a consumer of this channel; a commit is, where it has another owner by then.
    """

    after_loss = AfterLoss.ASK_AGAIN

    number: Number
    attempt: Attempt
    sequence: Annotated[int, Meta(ge=OFFSETS_FROM, le=2**63 - 1)]
    topic: Name
    group: Name
    offsets: list[tuple[Partition, Position]]
    is_member: bool = True


class TransactionCommit(ClientRequest, frozen=True):
    """Have the messages of these attempts appear in their queues, in this order. The answer is Ok: `{"visible"}`.

    Each attempt comes with the number of messages from its seal. `visible` is false if the decision stands, and a shard
    has yet to carry it out. Committing again is harmless.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    number: Number
    attempts: Attempts


class TransactionAbort(ClientRequest, frozen=True):
    """Have no message of a transaction appear. The answer is Ok, also if there is no such transaction.

    Refused (406) once it is committed. Number 0 is the open transaction of that name.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
