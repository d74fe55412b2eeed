"""What a consumer of a group hears of its partitions, and how it ends."""

from shardmq.client.api.message import Delivery
from shardmq.errors import ShardmqError


class Assigned:
    """Partitions that the consumer has from now on.

    Attributes:
        partitions: number, and offset of the next message, of each.
    """

    __slots__ = ("partitions",)

    def __init__(self, partitions: list[tuple[int, int]]) -> None:
        self.partitions = partitions


class Revoked:
    """Partitions that the consumer is to let go of, or has lost.

    Attributes:
        partitions: their numbers; None for all that it has: the connection was lost.
        is_lost: whether they are gone already.
        is_answered: whether the broker hears when the program has followed: not where the connection was lost.
    """

    __slots__ = ("is_answered", "is_lost", "partitions")

    def __init__(self, partitions: list[int] | None, is_lost: bool) -> None:
        self.partitions = partitions
        self.is_lost = is_lost
        self.is_answered = partitions is not None


class Ended:
    """Nothing comes any more.

    Attributes:
        error: why; None where the consumer was cancelled here.
    """

    __slots__ = ("error",)

    def __init__(self, error: ShardmqError | None) -> None:
        self.error = error


Change = Assigned | Revoked
Entry = Delivery | Change | Ended
