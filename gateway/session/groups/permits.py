"""How a member of a shared group splits its prefetch over its partitions: by permits, which follow the work.

    partition    0  1  2  3       2 has messages and no permit. Its shard says so, and one that lies idle goes there:
    permits      2  1  0  1
    unacked      2  0  0  1       one fewer for 1 ──► its shard answers, and has not used it ──► one more for 2

There are never more of them than the prefetch. So nothing waits here behind a slow handler while another member is
idle. A permit that was taken from a partition counts until its shard has answered, and longer if it was used before.

Where no permit is idle, the shard asks the next member, and the partition stays in the list of those that want one. It
gets one as soon as one is free. A busy partition gives one up from time to time, where others have none at all.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

PERMITS_MAX: Final = 100
"""A larger prefetch is not split: its client has more waiting behind a slow handler itself. Each partition may deliver
all of it, and what there is no room for waits here: in bulk, pieces of a record batch cost twice what whole ones do."""

IDLE_SECONDS: Final = 0.02
"""A permit that was not used for so long goes where messages wait; longer where the next message takes longer."""

BUSY_SECONDS: Final = 0.08
"""Where there are none, it is looked less often, down to this: 300 members with work for all took an eighth of the
broker's processor time to look every 20 ms."""

IDLE_SECONDS_MAX: Final = 1.0

ROTATE_SECONDS: Final = 1.0
"""So often a busy partition gives a permit up for one that has none."""


class Limited(Protocol):
    """The consumer of a partition.

    Attributes:
        unacked: messages that the client has of it.
    """

    unacked: int


Member = TypeVar("Member", bound=Limited)


class _Share(Generic[Member]):
    """The permits of one partition.

    Attributes:
        consumer: of the partition.
        count: how many it has, as its shard was told last.
        bound: how many of the prefetch it may take up: more than `count` until its shard has answered.
        unanswered: how often its shard was told of another count, and has not answered.
        is_asked_for: whether its shard waits for more, or to be declined. It is one of those that want some.
        unused: permits that were not in use when it was begun to look (`rest`); 0 where something was delivered since.
        spare: those of them that were not in use by the end of that (`look`); 0 where something was delivered since.
    """

    __slots__ = ("bound", "consumer", "count", "is_asked_for", "spare", "unanswered", "unused")

    def __init__(self, consumer: Member, count: int) -> None:
        self.consumer = consumer
        self.count = self.bound = count
        self.unanswered = self.unused = self.spare = 0
        self.is_asked_for = False

    @property
    def idle(self) -> int:
        """Return how many permits are not in use."""
        return 0 if self.unanswered else max(0, self.count - self.consumer.unacked)


class Permits(Generic[Member]):
    """The permits of a member.

    Args:
        limit: how many there are.
        turn: any number; which partition comes first among equals depends on it, so members differ in that.
        tell: tells the shard of a consumer how many it has, and calls a function when it has answered.
        decline: tells the shard of a consumer that there are no more for it now.

    Attributes:
        idle_seconds: how long a permit is left where nothing comes.
    """

    __slots__ = (
        "_asked_for",
        "_bound",
        "_decline",
        "_given",
        "_limit",
        "_lowered",
        "_shares",
        "_spent",
        "_tell",
        "_turn",
        "_wanting",
        "idle_seconds",
    )

    def __init__(
        self,
        limit: int,
        turn: int,
        tell: Callable[[Member, int, Callable[[], None]], None],
        decline: Callable[[Member], None],
    ) -> None:
        self._limit = limit
        self._turn = turn
        self._tell = tell
        self._decline = decline
        # What is known of a partition is in its share. The others are lists of shares, as a pass must not look at all:
        # a topic may have 10,000 of them, and few have permits, want some, or have more messages than permits.
        self._shares: dict[Member, _Share[Member]] = {}  # of all partitions
        self._given: dict[_Share[Member], None] = {}  # those that have permits; who got one last is the last
        self._wanting: dict[_Share[Member], None] = {}  # those that have messages beyond their permits
        self._spent: dict[_Share[Member], None] = {}  # those with more messages than permits
        self._asked_for = 0  # shares whose shards wait
        self._bound = 0  # of all
        self.idle_seconds = IDLE_SECONDS
        self._lowered = 0  # shards that have not answered to having fewer

    @property
    def is_wanted(self) -> bool:
        """Whether there are partitions that have messages beyond their permits."""
        return bool(self._wanting)

    @property
    def is_idle(self) -> bool:
        """Whether some permits are not in use."""
        return any(share.idle for share in self._given)

    def count(self, consumer: Member) -> int | None:
        """Return how many permits a partition has; None where it was not added."""
        share = self._shares.get(consumer)
        return None if share is None else share.count

    def add(self, consumer: Member, count: int) -> None:
        """Add a partition; its shard is told of its permits with the consumer."""
        share = self._shares[consumer] = _Share(consumer, min(count, max(0, self._limit - self._bound)))
        self._bound += share.bound
        if share.count:
            self._given[share] = None
        self._count(share)

    def remove(self, consumer: Member) -> None:
        """Forget a partition, and give its permits to others."""
        share = self._shares.pop(consumer, None)
        if share is None:
            return
        self._bound -= share.bound
        for shares in (self._given, self._spent):
            shares.pop(share, None)
        self._served(share)
        self._give()

    def limit(self, limit: int) -> None:
        """Change how many permits there are; they are split evenly again."""
        self._limit = limit
        shares = list(self._shares.values())
        for place, share in enumerate(shares):
            count = even_share(limit, len(shares), place)
            if count < share.count:
                self._lower(share, share.count - count, is_busy=True)
        for place, share in enumerate(shares):
            more = min(even_share(limit, len(shares), place) - share.count, self._limit - self._bound)
            if more > 0:
                self._raise(share, more)

    def delivered(self, consumer: Member) -> None:
        """Note that messages of a partition have come."""
        share = self._shares.get(consumer)
        if share is not None:
            share.unused = share.spare = 0

    def want(self, consumer: Member) -> None:
        """Note that a partition has messages beyond its permits: its shard waits for more, or to be declined."""
        share = self._shares.get(consumer)
        if share is not None:
            self._wanting[share] = None
            if not share.is_asked_for:
                share.is_asked_for = True
                self._asked_for += 1
            self.follow()

    def hear(self, consumer: Member) -> None:
        """Note that a partition has messages beyond its permits, and decline: what the others have is not known yet."""
        share = self._shares.get(consumer)
        if share is not None:
            self._wanting[share] = None
            self._decline(consumer)

    def settled(self) -> None:
        """Follow up on messages that were settled: permits that were taken from their partition may be free now."""
        if self._spent:
            for share in list(self._spent):
                self._count(share)
        if self._wanting:
            self._give()

    def rest(self) -> None:
        """Begin to look who uses the permits it has."""
        for share in self._given:
            share.unused = share.idle

    def look(self) -> None:
        """Give permits that were not used since `rest` where they are wanted; look less often where there are none."""
        for share in self._given:
            share.spare = min(share.unused, share.idle)
        if not any(share.spare for share in self._given):
            self.idle_seconds = max(self.idle_seconds, min(self.idle_seconds * 2, BUSY_SECONDS))
        self.follow()

    def follow(self) -> None:
        """Give permits where they are wanted: those that are free, then those that lie idle."""
        self._give()
        if self._wanting:
            donor = max(self._given, key=self._takeable, default=None)
            if donor is not None and (idle := self._takeable(donor)) > 0:
                self._lower(donor, max(1, idle // 2), is_busy=False)
            elif self._asked_for and not self._lowered:
                asked, self._asked_for = [share for share in self._wanting if share.is_asked_for], 0
                for share in asked:
                    share.is_asked_for = False
                    self._decline(share.consumer)

    def rotate(self) -> None:
        """Have busy partitions give up permits for those that have none: each as it is used no more."""
        without = [share for share in self._wanting if not share.count][: max(1, self._limit // 2)]
        for _ in without:
            donor = max(self._given, key=lambda share: share.count, default=None)
            if donor is None or donor.count <= self._least:
                return
            self._lower(donor, 1, is_busy=True)

    @property
    def _least(self) -> int:
        """Return how many permits each partition keeps: one, where there are enough."""
        return 1 if self._limit >= len(self._shares) else 0

    def _takeable(self, share: _Share[Member]) -> int:
        """Return how many permits may go elsewhere.

        Those that lay idle for a while: what was settled just now may be followed by the next message. Where a shard
        waits, those of a partition of which nothing is here, too, unless it was known to have messages.
        """
        is_unused = self._asked_for > 0 and not share.consumer.unacked and share not in self._wanting
        return min(share.idle if is_unused else share.spare, share.idle, share.count - self._least)

    def _give(self) -> None:
        while self._wanting and (free := self._limit - self._bound) > 0:
            wanting = list(self._wanting)
            self._raise(wanting[self._turn % len(wanting)], max(1, free // len(wanting)))

    def _raise(self, share: _Share[Member], more: int) -> None:
        share.count += more
        self._bound += max(0, share.count - share.bound)
        share.bound = max(share.bound, share.count)
        self._given.pop(share, None)
        self._given[share] = None
        self._say(share, partial(self._answered, share))

    def _lower(self, share: _Share[Member], fewer: int, *, is_busy: bool) -> None:
        """Take permits from a partition; those that it has used meanwhile it keeps, unless it is to lose them busy."""
        share.count -= fewer
        if not share.count:
            del self._given[share]
        self._lowered += 1
        self._say(share, partial(self._lowered_to, share, is_busy))

    def _say(self, share: _Share[Member], answered: Callable[[], None]) -> None:
        """Tell a shard how many permits a partition has; it asks again where that is not enough."""
        self._served(share)
        share.unanswered += 1
        self._tell(share.consumer, share.count, answered)

    def _served(self, share: _Share[Member]) -> None:
        """Note that a partition wants nothing more now."""
        self._wanting.pop(share, None)
        if share.is_asked_for:
            share.is_asked_for = False
            self._asked_for -= 1

    def _answered(self, share: _Share[Member]) -> None:
        share.unanswered -= 1
        if self._shares.get(share.consumer) is share:
            self._count(share)

    def _lowered_to(self, share: _Share[Member], is_busy: bool) -> None:
        self._lowered -= 1
        self._answered(share)
        if self._shares.get(share.consumer) is not share:
            return
        used = share.bound - share.count
        if used > 0 and not is_busy and not share.unanswered:
            self.idle_seconds = min(self.idle_seconds * 2, IDLE_SECONDS_MAX)
            self._raise(share, used)
        elif not is_busy:
            self.idle_seconds = max(self.idle_seconds / 2, IDLE_SECONDS)
        self.follow()

    def _count(self, share: _Share[Member]) -> None:
        """Note how much of the prefetch a partition takes up, when its shard has answered."""
        unacked = share.consumer.unacked
        if not share.unanswered:
            self._bound -= share.bound
            share.bound = max(share.count, unacked)
            self._bound += share.bound
        if share.unanswered or unacked > share.count:
            self._spent[share] = None
        else:
            self._spent.pop(share, None)


def even_share(limit: int, partitions: int, place: int) -> int:
    """Return how many of so many permits the partition at a place gets, where all get about as many."""
    return limit // partitions + (place < limit % partitions)
