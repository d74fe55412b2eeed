"""Publishes that a shard has been sent, and what it says of them."""

import time
from collections import deque
from collections.abc import Callable

from shardmq.bus.messages.shard import Confirmed, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.gateway.links.publishes.publish_plan import PlannedRun, SentBatch
from shardmq.limits import PUBLISH_WINDOW_BYTES
from shardmq.runtime.statistics.histograms import TimeHistogram


class PostedPublishes:
    """Publishes that wait for the confirm of one shard.

    Args:
        name: of the shard.
        exists: whether the topology has a queue of that id.

    Attributes:
        unconfirmed_bytes: handed to the shard, or about to be, without a confirm.
        relieved: called once when publishers need not wait any longer.
        confirm_seconds: how long the shard took to confirm what it was sent, once for each record batch.
    """

    def __init__(self, name: str, exists: Callable[[int], bool]) -> None:
        self.unconfirmed_bytes = 0
        self.relieved: list[Callable[[], None]] = []
        self._name = name
        self._exists = exists
        self._settled = 0  # the last one that was answered
        self._posted: deque[SentBatch | PlannedRun] = deque()
        self._refusals: dict[int, PublishRefusal] = {}
        self._sent_at: deque[tuple[int, int, float]] = deque()  # before each envelope, its last one, when it was sent
        self.confirm_seconds = TimeHistogram()

    def on_refusal(self, message: PublishRefusal) -> None:
        """Note a refusal until its confirm comes: of several queues' refusals, the one that took least counts."""
        noted = self._refusals.get(message.number)
        if noted is None or message.taken < noted.taken:
            self._refusals[message.number] = message

    def posted_until(self, upto: int) -> list[SentBatch]:
        """The publishes up to a number that wait for their confirm, batch by batch."""
        until = [batch for batch in self._posted if batch.number <= upto]
        return [part for batch in until for part in ((batch,) if isinstance(batch, SentBatch) else batch.parts())]

    def on_confirmed(self, message: Confirmed) -> None:
        """Settle all publishes up to a number."""
        posted, upto, refusals = self._posted, message.upto, self._refusals
        self._time(upto)
        self._settled = upto
        while posted and posted[0].number <= upto:
            batch = posted.popleft()
            self.unconfirmed_bytes -= batch.size
            if refusals:
                self._settle(batch, refusals)
            else:
                batch.confirm()
        if refusals:
            self._refusals = {number: refusal for number, refusal in refusals.items() if number > upto}
        self._relieve()

    def forget(self) -> None:
        """Forget what was sent."""
        self._posted.clear()
        self._refusals.clear()
        self._sent_at.clear()

    def note_sent(self, before: int, number: int) -> None:
        """Note when the publishes behind a number, and up to another, were sent, where somebody waits for them."""
        newest = self._posted[-1] if self._posted else None
        if isinstance(newest, SentBatch) and newest.publish.unawaited and newest.number == before + 1:
            return  # alone in its envelope: its confirm comes when the shard has more to say
        self._sent_at.append((before, number, time.monotonic()))

    def _time(self, upto: int) -> None:
        """Note how long the confirm of publishes up to a number took."""
        sent = self._sent_at
        if not sent or sent[0][1] > upto:
            return
        now = time.monotonic()
        while sent and sent[0][1] <= upto:
            before, number, at = sent.popleft()
            self.confirm_seconds.add(now - at, number - max(before, self._settled))

    def _settle(self, batch: SentBatch | PlannedRun, refusals: dict[int, PublishRefusal]) -> None:
        for part in (batch,) if isinstance(batch, SentBatch) else batch.parts():
            if part.number in refusals:
                self._refuse(part, refusals[part.number])
            else:
                part.confirm()

    def _refuse(self, batch: SentBatch, refusal: PublishRefusal) -> None:
        code, text = refusal.code, refusal.text
        is_missing = code == ReplyCode.NOT_FOUND
        if is_missing and any(map(self._exists, batch.publish.queues)):
            is_missing = False
            code, text = ReplyCode.RESOURCE_ERROR, f"{self._name} is back, but has not all its queues; publish again"
        for entry in batch.waiting:
            if is_missing and entry.is_many:
                entry.confirm()
            else:
                entry.refuse(code, text, max(0, refusal.taken - entry.start))

    def _relieve(self) -> None:
        if self.relieved and self.unconfirmed_bytes < PUBLISH_WINDOW_BYTES // 2:
            relieved, self.relieved = self.relieved, []
            for call in relieved:
                call()
