"""A shard as seen from the coordinator: its queues, its part in transactions, and what it has yet to be told.

Everything that is not answered is told again whenever a session opens, so that nothing depends on which messages an
earlier session lost.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost
from shardmq.bus.messages.base import Answer, Call, Refusal, Request, result_of
from shardmq.bus.messages.shard import AssignQueue, DropQueue, FromShard, OutOfService, PrepareDelete, Unused
from shardmq.bus.messages.stores import (
    ChangeWatermarks,
    Copy,
    Copying,
    Enroll,
    Expel,
    Hold,
    Identity,
    Recorded,
)
from shardmq.bus.messages.transactions import PreparationProgress
from shardmq.coordinator.links.asked import WENT_AWAY, Deletion, OnDone
from shardmq.coordinator.links.gateway_sessions import GatewaySessions
from shardmq.coordinator.links.transactions import ShardTransactions
from shardmq.coordinator.rules.shard_identity import ExpectedQueues, Members, ShardRefused
from shardmq.errors import RequestError, Unavailable, request_error
from shardmq.topology.entities import Queue

Result = TypeVar("Result")

_log = logging.getLogger(__name__)

FOLLOW_AGAIN_SECONDS: Final = 1.0
"""A decision that a shard refused to follow (its disk is full) is sent again after so long."""


class ShardLink:
    """The link to a shard, and everything that the shard is to know or to do.

    Args:
        number: of the shard.
        dialer: the link to it.
        members: which store serves as which shard.

    Attributes:
        name: of the process, such as `shard-0`.
        copying: how far the shard's copy of its store is; None where none was begun.
        transactions: its part in those.
        is_unsaid: whether the shard has yet to hear which queues are on disk.
        sessions: of gateways with it.
    """

    def __init__(self, number: int, dialer: Dialer[FromShard], members: Members) -> None:
        self.name: Final = f"shard-{number}"
        self.dialer: Final = dialer
        self.copying: Copying | None = None
        self._number = number
        self._members = members
        self.sessions: Final = GatewaySessions(self._ask)
        self._is_enrolled = False  # in this session
        self._request = 0
        self._asked: dict[int, tuple[Request[Any], Callable[[Any], None]]] = {}  # in this session, by request
        self._asked_once: list[OnDone] = []
        self._known: dict[int, Queue] = {}  # all queues that the shard may have
        self._queues: dict[int, Queue] = {}
        self._assigned: set[int] = set()  # of the queues, those the shard has answered for in this session
        self._assigning: set[int] = set()  # of the queues, those in an AssignQueue that is not answered yet
        self._to_assign: list[Queue] = []  # of those, what goes into the next AssignQueue
        self._ahead = 0  # of those, how many are new and not on disk yet
        self._was_ahead = False  # something was sent since the last flush
        self._newest = 0  # id of the newest queue
        self._recorded = 0  # id of the newest queue that is on disk
        self.is_unsaid = False
        self._on_assigned: dict[int, OnDone] = {}
        self._to_delete: dict[int, Deletion] = {}
        self._to_drop: dict[int, None] = {}
        self._dropped: list[int] = []
        self._unused: list[int] = []
        self._out_of_service: dict[int, str] = {}
        self.transactions: Final = ShardTransactions(self._ask, lambda: self.is_open)
        self._follow_again_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether the link is open and the shard's store accepted."""
        return self._is_enrolled and self.dialer.is_open

    @property
    def queues(self) -> Sequence[Queue]:
        """The shard's queues, those that are being declared among them, as the shard is to know them."""
        return list(self._queues.values())

    def add(self, queue: Queue) -> None:
        """Count a queue among this shard's. The shard is told with the next session."""
        self._queues[queue.id] = self._known[queue.id] = queue
        self._newest = max(self._newest, queue.id)

    def assign(self, queue: Queue, on_assigned: OnDone) -> None:
        """Make sure that the shard has a queue.

        Args:
            queue: the queue.
            on_assigned: called once, perhaps at once, unless `ignore_assign` comes before.
        """
        if queue.id in self._assigned:
            on_assigned(None)
            return
        self._on_assigned[queue.id] = on_assigned
        is_new = queue.id > self._newest
        self.add(queue)
        if self.is_open and queue.id not in self._assigning:
            self._assign(queue)
            self._ahead += is_new

    def send_ahead(self) -> None:
        """Send assignments before their queues are on disk, where these are new and nothing else waits to be sent."""
        if self._ahead and self._ahead == len(self._to_assign) and not self.dialer.has_posted:
            self._was_ahead = self.flush()

    def recorded(self) -> None:
        """Note that all queues assigned so far are on disk. The shard hears it with its next queue, or soon after."""
        if self._recorded != self._newest:
            self._recorded = self._newest
            self.is_unsaid = True

    def say_recorded(self) -> None:
        """Tell the shard so, where it has yet to hear it."""
        if self.is_unsaid and self.is_open:
            self.is_unsaid = False
            self.dialer.post(Recorded(self._recorded))

    def ignore_assign(self, queue: int) -> None:
        """Wait no more for the shard's answer about a queue. It stays the shard's."""
        self._on_assigned.pop(queue, None)

    def prepare_delete(self, queue: int, if_unused: bool, if_empty: bool, on_prepared: OnDone) -> None:
        """Ask whether a queue may be deleted, now or when the shard is back.

        Args:
            queue: id of the queue, which takes in nothing more from the shard's answer on.
            if_unused: only without consumers.
            if_empty: only without ready messages.
            on_prepared: called once, unless `cancel_delete` comes before.
        """
        self._to_delete[queue] = Deletion(if_unused, if_empty, on_prepared)
        if self.is_open:
            self._send_prepare_delete(queue)

    def cancel_delete(self, queue: int) -> None:
        """Wait no more for the shard's answer about a deletion; where it was prepared, the queue is as it was."""
        self._to_delete.pop(queue, None)
        if self.is_open and queue in self._queues:
            self._assign(self._queues[queue])

    def remove(self, queue: int) -> None:
        """Count a queue no longer among this shard's. A drop follows."""
        self._queues.pop(queue, None)
        self._assigned.discard(queue)

    def drop(self, queue: int) -> None:
        """Have a queue and its messages removed, now or when the shard is back."""
        self._to_drop[queue] = None
        if self.is_open:
            self._send_drop(queue)

    def ask_once(self, message: Hold | Copy | AssignQueue | ChangeWatermarks, on_done: OnDone) -> None:
        """Send a request that is not repeated. `on_done` is called once, with an error where the session ended."""
        if not self.is_open:
            on_done(Unavailable(WENT_AWAY))
            return
        self._asked_once.append(on_done)
        self._ask(message, partial(self._on_once, on_done))

    def take_unused(self) -> list[int]:
        """The queues that the shard has called unused since the last call."""
        unused, self._unused = self._unused, []
        return unused

    def take_dropped(self) -> list[int]:
        """The deleted queues that the shard has dropped since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def out_of_service(self, queue: int) -> str:
        """Why a queue cannot be deleted now: some of its messages are damaged; "" where it can."""
        return self._out_of_service.get(queue, "")

    def receive(self) -> bool:
        """Take in what the shard sent; returns whether more is left."""
        for event in self.dialer.receive():
            match event:
                case Answer() | Refusal():
                    self._on_reply(event)
                case OutOfService():
                    self._out_of_service[event.queue] = event.text
                case Copying():
                    self.copying = event
                case PreparationProgress():
                    self.transactions.on_progress(event)
                case Unused():
                    self._unused.append(event.queue)
                case Identity():
                    self._on_identity(event)
                case LinkLost():
                    self._on_lost()
        return self.dialer.more

    def flush(self) -> bool:
        """Send what was posted; the queues assigned since the last flush in one message. Returns whether any was."""
        self._post_assign()
        was_ahead, self._was_ahead = self._was_ahead, False
        return self.dialer.flush() or was_ahead

    def tick(self, now: float) -> None:
        """Keep the link alive, and tell refused decisions again. `now` is in monotonic seconds."""
        if self.dialer.tick(now):
            self._on_lost()
        self.say_recorded()
        if now >= self._follow_again_at:
            self._follow_again_at = now + FOLLOW_AGAIN_SECONDS
            self._members.look()
            self.transactions.follow_again()

    def _on_identity(self, said: Identity) -> None:
        """Accept the shard and tell it what it has missed, or expel it."""
        queues = {queue.id: (queue.vhost, queue.name) for queue in self._known.values()}
        durable = sum(queue.durable and not queue.owner for queue in self._queues.values())
        expected = ExpectedQueues(queues, durable, frozenset(self._to_drop), self.transactions.following)
        try:
            generation = self._members.enroll(self._number, said, expected)
        except ShardRefused as refused:
            _log.error("%s is refused: %s", self.name, refused)
            self.dialer.post(Expel(str(refused)))
            return
        if not generation:
            return
        self._is_enrolled = True
        self._ask(Enroll(self._members.broker, generation), self._on_enrolled)
        self._tell_all()

    def _on_enrolled(self, error: RequestError | None) -> None:
        if error is None:
            self._members.heard(self._number)
            return
        self._is_enrolled = False
        self._members.refused(self.dialer.address, error.text)

    def _tell_all(self) -> None:
        for queue in self._queues.values():
            self._assign(queue)
        for queue_id in self._to_delete:
            self._send_prepare_delete(queue_id)
        for queue_id in self._to_drop:
            self._send_drop(queue_id)
        self.transactions.tell_all()
        self._post_assign()
        self.is_unsaid = True
        self.say_recorded()  # of all that was told; what the shard has beside that was lost with another coordinator

    def _on_lost(self) -> None:
        self._out_of_service.clear()
        self._is_enrolled = False
        self.sessions.lose()
        if self.copying is None or not self.copying.files:  # a copy that is complete stays so
            self.copying = Copying(0, 0, fault=WENT_AWAY)
        self._asked.clear()
        asked, self._asked_once = self._asked_once, []
        for on_done in asked:
            on_done(Unavailable(WENT_AWAY))
        self._assigned.clear()
        self._assigning.clear()
        self._to_assign.clear()
        self._ahead = 0
        self.transactions.lost()

    def _ask(self, message: Request[Result], on_reply: Callable[[Result | RequestError], None]) -> None:
        """Send a request. Queues assigned before go before it: what was said first is done first."""
        self._post_assign()
        self._request += 1
        self._asked[self._request] = message, on_reply
        self.dialer.post(Call(self._request, message))

    def _on_reply(self, reply: Answer[msgspec.Raw] | Refusal) -> None:
        asked = self._asked.pop(reply.request, None)
        if asked is not None:
            message, on_reply = asked
            on_reply(result_of(message, reply) if isinstance(reply, Answer) else request_error(reply.code, reply.text))

    def _on_once(self, on_done: OnDone, error: RequestError | None) -> None:
        self._asked_once.remove(on_done)
        on_done(error)

    def _assign(self, queue: Queue) -> None:
        self._assigning.add(queue.id)
        self._to_assign.append(queue)

    def _post_assign(self) -> None:
        if self._to_assign:
            self.say_recorded()
            queues, self._to_assign, self._ahead = self._to_assign, [], 0
            self._ask(AssignQueue(queues), partial(self._on_assign_answer, [queue.id for queue in queues]))

    def _on_assign_answer(self, queues: list[int], error: RequestError | None) -> None:
        for queue in queues:
            self._assigning.discard(queue)
            if error is None and queue in self._queues:
                self._assigned.add(queue)
            on_assigned = self._on_assigned.pop(queue, None)
            if on_assigned is not None:
                on_assigned(error)

    def _send_prepare_delete(self, queue: int) -> None:
        asked = self._to_delete[queue]
        message = PrepareDelete(queue, asked.if_unused, asked.if_empty)
        self._ask(message, partial(self._on_delete_prepared, queue, asked))

    def _on_delete_prepared(self, queue: int, asked: Deletion, error: RequestError | None) -> None:
        if self._to_delete.get(queue) is asked:  # not the answer to an earlier, cancelled request
            del self._to_delete[queue]
            asked.on_prepared(error)

    def _send_drop(self, queue: int) -> None:
        self._ask(DropQueue(queue), partial(self._on_dropped, queue))

    def _on_dropped(self, queue: int, count: int | RequestError) -> None:
        if isinstance(count, RequestError):
            return  # sent again in the next session
        self._to_drop.pop(queue, None)
        self._dropped.append(queue)
        self._known.pop(queue, None)
