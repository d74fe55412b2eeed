"""A shard as seen from the coordinator: which queues it has been given, which it has still to drop.

Both are told again whenever a session opens, so that nothing depends on which messages an earlier session lost.
"""

from collections.abc import Callable
from typing import Final

from shardmq.bus.link import Dialer, Lost, Opened
from shardmq.bus.messages import Answer, Assign, Drop, FromShard, Refusal
from shardmq.model import Queue

Given = Callable[[Refusal | None], None]
"""Called when the shard has a queue on disk, or refused it."""

Dropped = Callable[[int | Refusal], None]
"""Called with the number of messages that went with a queue, or with the refusal."""


class Shard:
    """See the module.

    Args:
        name: as `shard-2`.
        dialer: the link to it.
    """

    def __init__(self, name: str, dialer: "Dialer[FromShard]") -> None:
        self.name: Final = name
        self.dialer: Final = dialer
        self._dropped: list[int] = []
        self._request = 0
        self._queues: dict[int, Queue] = {}
        self._given: set[int] = set()  # of the queues, those the shard has answered for in this session
        self._asked: set[int] = set()  # of the queues, those in an Assign that is not answered yet
        self._to_drop: dict[int, Dropped | None] = {}
        self._givers: dict[int, Given] = {}
        self._assigns: dict[int, list[int]] = {}
        self._drops: dict[int, int] = {}

    def keep(self, queue: Queue) -> None:
        """Count a queue among this shard's; it is told with the next session."""
        self._queues[queue.id] = queue

    def give(self, queue: Queue, given: Given) -> None:
        """Make sure that the shard has a queue. `given` is called once, maybe at once, unless given up before."""
        if queue.id in self._given:
            given(None)
            return
        self._givers[queue.id] = given
        self._queues[queue.id] = queue
        if self.dialer.is_open and queue.id not in self._asked:
            self._assign([queue])

    def give_up(self, queue: int) -> None:
        """Wait no longer for the shard's answer about a queue. It stays the shard's."""
        self._givers.pop(queue, None)

    def drop(self, queue: int, dropped: Dropped | None = None) -> None:
        """Have a queue and its messages removed, now or when the shard is back."""
        self._to_drop[queue] = dropped
        if self.dialer.is_open:
            self._send_drop(queue)

    def take_away(self, queue: int) -> None:
        """Count a queue no longer among this shard's; a drop follows."""
        self._queues.pop(queue, None)
        self._given.discard(queue)

    def answer_no_longer(self, queue: int) -> None:
        """Wait no longer for the shard's answer about a drop. It stays to be dropped."""
        if queue in self._to_drop:
            self._to_drop[queue] = None

    def take_dropped(self) -> list[int]:
        """The deleted queues that the shard has dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def receive(self) -> bool:
        """Take in what the shard sent; returns whether more is left."""
        for event in self.dialer.receive():
            match event:
                case Answer() | Refusal():
                    self._on_answer(event)
                case Opened():
                    self._on_opened()
                case Lost():
                    self._on_lost()
        return self.dialer.more

    def tick(self, now: float) -> None:
        """Keep the link alive."""
        if self.dialer.tick(now):
            self._on_lost()

    def _on_opened(self) -> None:
        if self._queues:
            self._assign(list(self._queues.values()))
        for queue in self._to_drop:
            self._send_drop(queue)

    def _on_lost(self) -> None:
        self._given.clear()
        self._asked.clear()
        self._assigns.clear()
        self._drops.clear()

    def _on_answer(self, answer: Answer | Refusal) -> None:
        refusal = answer if isinstance(answer, Refusal) else None
        if answer.request in self._assigns:
            for queue in self._assigns.pop(answer.request):
                self._asked.discard(queue)
                if refusal is None and queue in self._queues:
                    self._given.add(queue)
                given = self._givers.pop(queue, None)
                if given is not None:
                    given(refusal)
        elif answer.request in self._drops:
            queue = self._drops.pop(answer.request)
            dropped = self._to_drop.pop(queue, None)
            if isinstance(answer, Refusal):
                self._to_drop[queue] = None  # asked again in the next session
            else:
                self._dropped.append(queue)
            if dropped is not None:
                dropped(answer if isinstance(answer, Refusal) else answer.result)

    def _assign(self, queues: list[Queue]) -> None:
        self._request += 1
        self._assigns[self._request] = [queue.id for queue in queues]
        self._asked.update(self._assigns[self._request])
        self.dialer.post(Assign(self._request, queues))

    def _send_drop(self, queue: int) -> None:
        self._request += 1
        self._drops[self._request] = queue
        self.dialer.post(Drop(self._request, queue))
