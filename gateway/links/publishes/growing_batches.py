"""Record batches that grow until they are posted, and what comes before what."""

from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.shard import Publish, PublishRefusal
from shardmq.gateway.links.publishes.forwarding import Forwarding
from shardmq.gateway.links.publishes.posted_publishes import PostedPublishes
from shardmq.gateway.links.publishes.publish_columns import COLUMN_BYTES_MAX, post_columns
from shardmq.gateway.links.publishes.publish_plan import Place, PlannedBatch, SentBatch, place_of
from shardmq.message.record_batch import RecordBatch

if TYPE_CHECKING:
    from shardmq.bus.dialer import Dialer
    from shardmq.bus.messages.shard import FromShard


class GrowingBatches(PostedPublishes):
    """The batches of one shard that are growing, and those that wait for its confirm.

    Args:
        dialer: the link to the shard.
        name: of the shard.
        exists: whether the topology has a queue of that id.
        stamp: writes time, origin and serial into a record batch.

    Attributes:
        growing: batches that are not posted, each of them once for every queue of its route.
        kept_until: until when what is posted waits for the shard to be led by another host, in monotonic seconds; None
            where that is not awaited.
        forwarding: what goes to consumers on its way to the shard.
        has_heirs: whether another host may lead the shard when its own dies; the owner sets it.
    """

    def __init__(
        self,
        dialer: "Dialer[FromShard]",
        name: str,
        exists: Callable[[int], bool],
        stamp: Callable[[RecordBatch], None],
    ) -> None:
        super().__init__(name, exists)
        self._dialer = dialer
        self._say: Callable[[BusMessage], None] = dialer.post
        self.kept_until: float | None = None
        self.has_heirs = False
        self._stamp = stamp
        self._numbers = 0  # publishes posted in this session
        self.forwarding = Forwarding()
        self._passed_over = 0  # when something was sent the last time
        self.growing: dict[Place, SentBatch | PlannedBatch] = {}
        self._sorted: dict[int, dict[Place, None]] = {}  # by queue: where batches of one priority grow
        self._followed: list[PlannedBatch] = []  # another grows for the queue of each, behind it

    @property
    def is_waiting(self) -> bool:
        """Whether publishes wait for the shard to be led by another host."""
        return self.kept_until is not None and bool(self._posted or self._followed or self.growing)

    def on_refusal(self, message: PublishRefusal) -> None:
        """Note a refusal; what is refused again and again is not to be seen each time."""
        self.forwarding.stop_all()
        super().on_refusal(message)

    def close_batches(self) -> None:
        """Post what has grown: what is posted next comes behind it, and the next publish begins another batch."""
        growing = self.growing
        if not growing:
            return
        planned, self._followed = self._followed, []
        is_ordered = bool(planned)
        for batch in list(growing.values()):
            if isinstance(batch, SentBatch):
                if not batch.number:  # it is there for every queue of its route
                    self._post(batch)
            elif is_ordered or batch.size <= COLUMN_BYTES_MAX:
                planned.append(batch)
            else:
                self._post_whole(batch.widened())
        growing.clear()
        self._post_planned(planned)

    def forward(self) -> bool:
        """Post what has grown where consumers may have it on its way; returns whether they have all of it now."""
        forwarding = self.forwarding
        if not (self.growing and forwarding.is_any) or forwarding.is_crowded:
            return False
        self.close_batches()
        return forwarding.passed_over == self._passed_over

    def _post_followed(self) -> None:
        """Post what others follow, before a batch of another kind does."""
        followed, self._followed = self._followed, []
        self._post_planned(followed)

    def _post_planned(self, planned: list[PlannedBatch]) -> None:
        """Post batches in their order, small neighbours together."""
        for is_small, found in groupby(planned, _is_small):
            batches = list(found)
            if is_small and len(batches) > 1:
                may_forward = self.forwarding.alone and not self.forwarding.is_crowded
                forwarding = self.forwarding if may_forward else None
                self._numbers = post_columns(batches, self._numbers, self._stamp, self._say, self._posted, forwarding)
                self.forwarding.published = self._numbers
                if not may_forward:
                    self.forwarding.stop_all()
            else:
                for batch in batches:
                    self._post_whole(batch.whole())

    def _post(self, grown: SentBatch | PlannedBatch) -> None:
        if isinstance(grown, PlannedBatch):
            del self.growing[grown.plan.place]
            self._post_whole(grown.widened())
            return
        for queue, place in zip(grown.publish.queues, grown.places, strict=True):
            del self.growing[place]
            if isinstance(place, tuple):
                del self._sorted[queue][place]
                if not self._sorted[queue]:
                    del self._sorted[queue]
        self._post_whole(grown)

    def _post_whole(self, grown: SentBatch) -> None:
        publish = grown.publish
        batch = publish.batch
        if len(grown.records) > 1:
            batch.count = grown.count
            batch.records = b"".join(grown.records)
            grown.records.clear()
        if not batch.serial:
            self._stamp(batch)
        if self.forwarding.is_crowded:
            self.forwarding.stop_all()
        elif self.forwarding.alone:
            publish = self._forwarded(publish)
        self._numbers += 1
        self.forwarding.published = self._numbers
        grown.number = self._numbers
        self._posted.append(grown)
        self._say(publish)

    def _forwarded(self, publish: Publish) -> Publish:
        """Forward what is about to be posted to its consumer, where that may be; returns what is to be posted."""
        if len(publish.queues) > 1 or publish.producer or publish.delay_ms or publish.transaction:
            self.forwarding.pass_over(publish.queues)
            return publish
        consumer, first = self.forwarding.offer(publish.queues[0], publish.batch)
        return replace(publish, forwarded=consumer, forwarded_as=first) if consumer else publish

    def _keep(self, until: float | None) -> None:
        """Say nothing of what is posted until then; None has it said again."""
        self.forwarding.forget()
        self.kept_until = until
        self._say = self._dialer.post if until is None else _unsaid

    def _post_kept(self) -> None:
        """Post in a new session what waits for its confirm, in its order."""
        posted = list(self._posted)
        self.forget()
        self._numbers = 0
        for batch in posted:
            for part in (batch,) if isinstance(batch, SentBatch) else batch.parts():
                self._post_whole(part)

    def _begin_batch(self, publish: Publish, header: tuple[object, ...], sender: tuple[int, int, int]) -> SentBatch:
        growing, batch = self.growing, publish.batch
        if publish.transaction:  # an attempt's numbers are to come in order, whichever their queues
            self.close_batches()
        queues = publish.queues
        places = tuple([place_of(queues, queue, batch.priority, publish.producer) for queue in queues])
        for queue, place in zip(queues, places, strict=True):
            if queue in growing:
                self._post(growing[queue])
            if place in growing:
                self._post(growing[place])
            if isinstance(place, tuple):
                self._sorted.setdefault(queue, {})[place] = None
            else:  # it has an order with those of every priority
                while queue in self._sorted:
                    self._post(growing[next(iter(self._sorted[queue]))])
        count, records = batch.count, batch.records
        begun = SentBatch(
            publish,
            places,
            header,
            sender,
            [records],
            count,
            len(records),
            batch.serial + count if batch.serial else 0,
            publish.sequence + count if publish.producer else 0,
        )
        for place in places:
            growing[place] = begun
        return begun


def _unsaid(_message: BusMessage) -> None:
    """It is posted once the shard is there."""


def _is_small(batch: PlannedBatch) -> bool:
    return batch.size <= COLUMN_BYTES_MAX
