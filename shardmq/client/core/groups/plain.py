"""A plain consumer (`consume`, `basic_consume`) that is a member of an ordered group: what it has let go of.

    revoked 2 ──► nothing of 2 that came before is handed out; is a message of 2 in hand?
                     no ──► let go of 2 now          yes ──► let go of 2 when the program comes back for the next
    lost 2 ─────► nothing of 2 is handed out either; the broker is told when the program comes back, as a sign of life
    assigned 2 ──► what comes from now on is handed out again

The connection says what it hears; the program's thread or task asks before it hands out. What the program acked goes
to the broker before partitions are let go of. What was handed out and not acked by then goes to the next member.
"""

from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, Final

from shardmq.client.api.message import Delivery

_ALL: Final = 1 << 63
"""Above every delivery tag."""


class PlainMember:
    """The partitions of a plain consumer.

    Args:
        guard: a lock, where the connection has a thread of its own.
        let_go_soon: has `to_let_go` asked soon, by whoever tells the broker; called under the connection's lock.

    Attributes:
        tag: of the consumer, once a partition was revoked.
    """

    __slots__ = ("_gone", "_guard", "_in_hand", "_let_go_soon", "_owed", "tag")

    def __init__(self, guard: AbstractContextManager[object], let_go_soon: Callable[["PlainMember"], None]) -> None:
        self.tag = ""
        self._guard = guard
        self._let_go_soon = let_go_soon
        self._gone: dict[int, int] = {}  # by partition: deliveries up to this tag are of somebody else by now
        self._in_hand: Counter[int] = Counter()  # deliveries or messages that the program has, by partition
        self._owed: set[int] = set()  # revoked or lost, and the broker was not told yet that they are let go of

    def assigned(self, partitions: Collection[int], last_tag: int) -> None:
        """Note partitions that it has from now on; what came of them up to a delivery tag stays dropped."""
        with self._guard:
            for number in self._gone.keys() & set(partitions):
                self._gone[number] = min(self._gone[number], last_tag)
            self._owed.difference_update(partitions)

    def revoked(self, tag: str, partitions: Collection[int], is_lost: bool) -> None:
        """Note partitions that it is to let go of, or has lost."""
        with self._guard:
            self.tag = tag
            self._gone.update(dict.fromkeys(partitions, _ALL))
            self._owed.update(partitions)
        if not is_lost:  # of what is lost the broker is told when the program comes back: it shows that it is at work
            self._let_go_soon(self)

    def broken(self) -> None:
        """Note that the connection was lost: it has nothing, and owes nothing."""
        with self._guard:
            self._owed.clear()

    def is_gone(self, partition: int | None, delivery_tag: int) -> bool:
        """Whether a message is of a partition that was revoked after it came."""
        return bool(self._gone) and partition is not None and delivery_tag <= self._gone.get(partition, 0)

    def take(self, partition: int | None, delivery_tag: int) -> bool:
        """Note that the program gets what came with a delivery tag, unless it is gone; returns whether it does."""
        with self._guard:
            if self.is_gone(partition, delivery_tag):
                return False
            if partition is not None:
                self._in_hand[partition] += 1
            return True

    def put_down(self, partition: int | None) -> bool:
        """Note that the program is done with what it took; returns whether it is to ask `to_let_go`."""
        if partition is None:
            return False
        with self._guard:
            self._in_hand[partition] -= 1
            if not self._in_hand[partition]:
                del self._in_hand[partition]
            return partition in self._owed

    def to_let_go(self) -> list[int]:
        """Take the revoked partitions of which nothing is in hand: the broker is to be told of them."""
        with self._guard:
            free = sorted(self._owed - self._in_hand.keys())
            self._owed.difference_update(free)
        return free


class PlainInbox:
    """A plain consumer's inbox.

    Attributes:
        member: its partitions; None where it is no member of an ordered group, or acks nothing.
    """

    member: PlainMember | None = None
    _in_hand: int | None = None  # the partition of the delivery that the program has

    def takes(self, delivery: Delivery) -> bool:
        """Whether the program gets a delivery: it has that until `put_down`."""
        if self.member is None:
            return True
        is_taken = self.member.take(delivery.frame.partition, delivery.frame.tag)
        if is_taken:
            self._in_hand = delivery.frame.partition
        return is_taken

    def put_down(self) -> PlainMember | None:
        """Note that the program came back for more; returns the member where it may now let go of partitions."""
        partition, self._in_hand = self._in_hand, None
        return self.member if self.member is not None and self.member.put_down(partition) else None

    def has_lost(self, delivery: Delivery) -> bool:
        """Whether the rest of a delivery is no more the program's: its partition was revoked."""
        return self.member is not None and self.member.is_gone(delivery.frame.partition, delivery.frame.tag)


def is_plain_member(arguments: dict[str, Any], auto_ack: bool) -> bool:
    """Whether a consumer is to follow revocations.

    What is acked as it is sent is committed, and nobody else would get it: all of that is handed out.
    """
    return "x-group" in arguments and not auto_ack
