"""Room for large messages: lent to connections, message by message, within one limit for each and one for all.

    shard ──Wanted(size)──► request ──room in the connection's limit, and in the gateway's──► granted ──Permit──► shard
                                                                                                 │
    repaid ◄──the client's socket has taken it──┬── used ◄──Spent, and the message behind it─────┘
                                                └── not used: it is gone, or another consumer has it

A consumer's window holds what is small. A message that is larger than that waits in its queue until there is room for
it here, so what waits for a connection that does not read is its windows, and its loans. Who asked first is served
first. A message larger than a limit goes when nothing else is lent.

While somebody waits for the gateway's limit, a connection that holds a loan and has read nothing of it for
STALLED_SECONDS is closed: it would keep all others from their messages.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from shardmq.limits import LOANS_ARRIVING_BYTES, LOANS_BYTES

STALLED_SECONDS: Final = 10.0
"""How long a client may read nothing of a large message while others wait for theirs."""

Grant = Callable[[], bool]
"""Called when there is room; returns whether it is still wanted."""


class Lender:
    """What a gateway lends to all its connections.

    Args:
        bytes_max: at a time.

    Attributes:
        lent: bytes lent and not repaid.
        arriving: bytes of them whose messages are on their way from their shards.
    """

    __slots__ = ("_bytes_max", "_is_serving", "_queue", "arriving", "lent")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._queue: deque[Account] = deque()
        self._is_serving = False
        self.lent = self.arriving = 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits because of what others have, and not for what is on its way."""
        return bool(self._queue) and not self._fits(self.lent, self._queue[0].wanted, self._bytes_max)

    def line_up(self, account: "Account") -> None:
        """Queue a connection whose next request fits into its own limit."""
        self._queue.append(account)
        self.serve()

    def leave(self, account: "Account") -> None:
        """Forget a connection that is gone."""
        if account in self._queue:
            self._queue.remove(account)

    def serve(self) -> None:
        """Grant what there is room for, in the order of the queue."""
        if self._is_serving:
            return
        self._is_serving = True
        queue = self._queue
        while queue and self._has_room(queue[0].wanted):
            queue.popleft().grant()
        self._is_serving = False

    def _has_room(self, size: int) -> bool:
        return self._fits(self.lent, size, self._bytes_max) and self._fits(self.arriving, size, LOANS_ARRIVING_BYTES)

    @staticmethod
    def _fits(taken: int, size: int, limit: int) -> bool:
        return not taken or taken + size <= limit


class Account:
    """What one connection was lent, and asks for.

    Args:
        lender: of the gateway.
    """

    __slots__ = ("_arriving", "_is_closed", "_is_lined_up", "_lender", "_waiting", "lent")

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self._waiting: deque[tuple[int, Grant]] = deque()
        self._is_lined_up = self._is_closed = False
        self._arriving = 0
        self.lent = 0

    @property
    def wanted(self) -> int:
        """Bytes of the first request."""
        return self._waiting[0][0]

    def ask(self, size: int, grant: Grant) -> None:
        """Have `grant` called when there is room for `size` bytes; they are to be repaid once they have arrived."""
        if not self._is_closed:
            self._waiting.append((size, grant))
            self._line_up()

    def grant(self) -> None:
        """Lend to the first request: there is room for it."""
        self._is_lined_up = False
        size, grant = self._waiting.popleft()
        self.lent += size
        self._arriving += size
        self._lender.lent += size
        self._lender.arriving += size
        if not grant():
            self.arrived(size, 0)
        self._line_up()

    def arrived(self, size: int, used: int) -> None:
        """Note that what was lent has arrived: `used` bytes of it are in use, the others are repaid."""
        if self._is_closed:
            return
        self._arriving -= size
        self._lender.arriving -= size
        self.repay(size - used)

    def repay(self, size: int) -> None:
        """Give `size` bytes back."""
        if self._is_closed:
            return
        self.lent -= size
        self._lender.lent -= size
        self._line_up()
        self._lender.serve()

    def close(self) -> None:
        """Give everything back: the connection is gone."""
        self._is_closed = True
        self._lender.lent -= self.lent
        self._lender.arriving -= self._arriving
        self.lent = self._arriving = 0
        self._waiting.clear()
        self._lender.leave(self)
        self._lender.serve()

    def _line_up(self) -> None:
        if self._waiting and not self._is_lined_up and (not self.lent or self.lent + self.wanted <= LOANS_BYTES):
            self._is_lined_up = True
            self._lender.line_up(self)
