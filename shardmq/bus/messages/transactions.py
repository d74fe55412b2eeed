"""What becomes of a transaction on a shard."""

from shardmq.bus.messages.base import BusMessage, Request


class Seal(Request[tuple[int, int]], frozen=True, tag=38):
    """Seal an attempt of a transaction, which takes no more messages. Sealing twice has the effect of once.

    Answer: (messages, bytes of their records) of the attempt on this shard, which may be none.
    """

    transaction: int
    attempt: int


class Prepare(Request[list[int]], frozen=True, tag=39):
    """Ask how many messages of attempts that are to be committed are staged on this shard.

    Answered when all of that was read, and is what was written: a number for each attempt, in order; -1 for an attempt
    that is here and not sealed. Asked again, a shard goes on reading where it is; who asked before is refused (506).

    Attributes:
        transaction: its number.
        attempts: theirs.
        is_told: whether the shard is to tell how far it is (PreparationProgress).
    """

    transaction: int
    attempts: list[int]
    is_told: bool = False


class PreparationProgress(BusMessage, frozen=True, tag=76):
    """Tells how far a shard is with a Prepare that asked for that: about once a second, if it has read more.

    Attributes:
        transaction: its number.
        read: bytes of records that were read so far.
        staged: bytes of records that are to be read.
    """

    transaction: int
    read: int
    staged: int


class FollowDecision(Request[None], frozen=True, tag=50):
    """Follow the decision on a transaction.

    The batches that `attempts` staged join their queues, attempt by attempt. All others are removed, and so is
    everything that comes for the transaction later. Answered by nil when that is on disk, also where nothing was
    staged. Sent again in every session until it is answered.
    """

    transaction: int
    attempts: list[int]


TransactionRequest = Seal | Prepare | FollowDecision
"""What gateways and the coordinator ask shards about transactions."""
