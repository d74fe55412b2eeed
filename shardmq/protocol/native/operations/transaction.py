"""The operations of transactions: messages to any number of queues that appear whole or not at all.

begin ─► publish … (basic.publish with the transaction's number) ─► seal ─┬─► commit, naming the attempts that count
             └── one attempt each, by as many clients as there are ───────┴─► abort
"""

from typing import Annotated

from msgspec import Meta

from shardmq.limits import ATTEMPTS_MAX, DELAY_MS_MAX
from shardmq.protocol.native.operations.fields import AfterLoss, ClientRequest, Name

Number = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Attempt = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Attempts = Annotated[list[tuple[Attempt, Annotated[int, Meta(ge=0, le=2**63 - 1)]]], Meta(max_length=ATTEMPTS_MAX)]


class TransactionBegin(ClientRequest, frozen=True):
    """Makes a transaction, or finds the one of that name. Answered by Ok: `{"number", "state"}`, state being "open", or
    "committed": then there is nothing left to do.

    It is aborted when nobody has begun it (again) for `timeout_ms`; 0 is the broker's default. With a `number`, only
    that one is meant: refused (406) where it is over, so that whoever comes late makes none.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    timeout_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] = 0
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0


class TransactionSeal(ClientRequest, frozen=True):
    """An attempt is complete, and all it published confirmed. Answered by Ok: `{"messages", "bytes"}` that it has
    staged, counted once for each shard they went to: what its commit has to name.
    """

    after_loss = AfterLoss.ASK_AGAIN

    number: Number
    attempt: Attempt


class TransactionCommit(ClientRequest, frozen=True):
    """What these attempts, (attempt, messages by its seal) each, staged appears in its queues, in this order. Answered
    by Ok: `{"visible"}`, false where the decision stands and some shard has yet to follow; asking again is harmless.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    number: Number
    attempts: Attempts


class TransactionAbort(ClientRequest, frozen=True):
    """Nothing of it ever appears. Answered by Ok, also when it is not there; refused (406) once it was committed.
    Number 0 is whichever has the name now.
    """

    after_loss = AfterLoss.ASK_AGAIN

    transaction: Name
    number: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
