"""The batches that a publisher has sent, and what has become of them."""

from collections.abc import Callable
from typing import NamedTuple

from shardmq.client.core.batching import PublishBatch
from shardmq.client.core.interfaces import Confirms, Reply
from shardmq.errors import ShardmqError, Unroutable


class _Stretch:
    """The batches that were sent between two flushes.

    Attributes:
        unconfirmed: their messages that are neither confirmed nor refused.
    """

    __slots__ = ("_all", "unconfirmed")

    def __init__(self, all_batches: "SentBatches") -> None:
        self._all = all_batches
        self.unconfirmed = 0

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Count the confirm of a batch."""
        self.unconfirmed -= count
        self._all.settled(count, error, taken)

    def returned(self, count: int, error: Unroutable) -> bool:
        """Count messages that came back."""
        return self._all.returned(count, error)


class _Waiter(NamedTuple):
    """Somebody who waits for confirms.

    Attributes:
        wanted: how many messages are to be confirmed or refused, whichever they are.
        stretches: all of whose messages are to be.
        reply: is told.
    """

    wanted: int
    stretches: list[_Stretch]
    reply: Reply[None]


class SentBatches:
    """The batches that a publisher has sent, and what has become of them. With threads, it is under the core's lock.

    Confirms come in any order, as shards answer. Who flushes waits for all that was sent before, and for nothing that
    others send meanwhile: a flush begins a new stretch of batches, and waits for those before it.

    Args:
        has_return_hook: says whether a hook hears of messages that come back; if not, the next flush does.

    Attributes:
        messages: how many were sent in all.
        unconfirmed: messages sent and neither confirmed nor refused.
        unconfirmed_batches: batches of which that is true.
        error: the first refusal or return since the last flush.
    """

    __slots__ = (
        "_came_back",
        "_earlier",
        "_exchange",
        "_has_return_hook",
        "_latest",
        "_refused",
        "_routing_key",
        "_waiters",
        "error",
        "messages",
        "unconfirmed",
        "unconfirmed_batches",
    )

    def __init__(self, has_return_hook: Callable[[], bool]) -> None:
        self._has_return_hook = has_return_hook
        self.messages = 0
        self.unconfirmed = 0
        self.unconfirmed_batches = 0
        self.error: ShardmqError | None = None
        self._refused = 0
        self._came_back = 0
        self._exchange = self._routing_key = ""
        self._earlier: list[_Stretch] = []
        self._latest = _Stretch(self)
        self._waiters: list[_Waiter] = []

    @property
    def target(self) -> str:
        """Where the last batch went, for the text of a timeout."""
        return f"the last messages went to exchange '{self._exchange}' with routing key '{self._routing_key}'"

    def add(self, batch: PublishBatch) -> Confirms:
        """Count a batch as sent; returns what its confirm is counted by."""
        self._exchange, self._routing_key, _, count, *_ = batch
        self.messages += count
        self.unconfirmed += count
        self.unconfirmed_batches += 1
        self._latest.unconfirmed += count
        return self._latest

    def are_settled(self, wanted: int | None) -> bool:
        """Whether so many messages are confirmed or refused; all that were sent, where None."""
        return not self.unconfirmed if wanted is None else wanted <= self.messages - self.unconfirmed

    def when_settled(self, wanted: int | None, reply: Reply[None]) -> None:
        """Settle a reply when so many messages are confirmed or refused; all that were sent until now, where None."""
        if wanted is not None:
            self._waiters.append(_Waiter(wanted, [], reply))
            return
        earlier = [stretch for stretch in (*self._earlier, self._latest) if stretch.unconfirmed]
        self._earlier, self._latest = earlier, _Stretch(self)
        self._waiters.append(_Waiter(self.messages, earlier, reply))

    def settled(self, count: int, error: ShardmqError | None, taken: int = 0) -> None:
        """Count the confirm of a batch."""
        self.unconfirmed_batches -= 1
        self.unconfirmed -= count
        if error is not None and taken < count:
            self._refused += count - taken
            self.error = self.error or error
        if self._waiters:
            for wanted, stretches, reply in self._waiters:
                is_due = self.are_settled(wanted) and not any(stretch.unconfirmed for stretch in stretches)
                if is_due and not reply.done():
                    reply.set_result(None)
            self._waiters = [waiter for waiter in self._waiters if not waiter.reply.done()]

    def returned(self, count: int, error: Unroutable) -> bool:
        """Count messages that came back; returns whether the hook hears of it, and not who flushes."""
        if self._has_return_hook():
            return True
        self._came_back += count
        self.error = self.error or error
        return False

    def take_error(self) -> ShardmqError | None:
        """The error of a flush, if there is one: the first message's, with how many were refused or came back."""
        first, refused, came_back = self.error, self._refused, self._came_back
        self.error, self._refused, self._came_back = None, 0, 0
        if first is None:
            return None
        counts = [f"{refused} message{' was' if refused == 1 else 's were'} refused"] if refused else []
        counts += [f"{came_back} message{'' if came_back == 1 else 's'} came back"] if came_back else []
        text = first.text if refused + came_back == 1 else f"{', '.join(counts)}; the first: {first.text}"
        error = first.with_text(text)
        error.refused, error.came_back = refused, came_back
        error.__cause__ = first
        return error
