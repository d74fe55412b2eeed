"""A shard as seen from the coordinator: which queues it has been given, which it is to condemn, which it has to drop;
which transactions it is to prepare, and which are decided.

All are told again whenever a session opens, so that nothing depends on which messages an earlier session lost.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost
from shardmq.bus.messages.base import Answer, Refusal
from shardmq.bus.messages.shard import (
    AssignQueue,
    DropQueue,
    FollowDecision,
    FromShard,
    OutOfService,
    Prepare,
    PrepareDelete,
    Unused,
)
from shardmq.bus.messages.stores import Copy, Copying, Enroll, Expel, Hold, Identity
from shardmq.coordinator.rules.shard_identity import Expected, Members, ShardRefused
from shardmq.errors import StartupRefused
from shardmq.topology.entities import Queue

Given = Callable[[Refusal | None], None]
"""Called when the shard has a queue on disk, or refused it."""

Dropped = Callable[[int | Refusal], None]
"""Called with the number of ready messages that went with a queue, or with the refusal."""

Condemned = Callable[[Refusal | None], None]
"""Called when a queue takes in nothing more, as it is to be deleted; or with why it is not to be."""

Heard = Callable[[Answer | Refusal | None], None]
"""Called with the answer, or with None where there is none to come."""

Counted = Callable[[list[int] | Refusal], None]
"""Called with how many messages each attempt has on the shard, or with the refusal."""

_log = logging.getLogger(__name__)

CONCLUDE_AGAIN_SECONDS: Final = 1.0
"""A decision that a shard refused to follow (its disk is full) is told again after so long."""


@dataclass(slots=True, eq=False)
class _Preparation:
    """A transaction to be prepared; `request` is the last one that asked for it."""

    attempts: list[int]
    counted: Counted
    request: int = 0


class ShardLink:
    """See the module.

    Args:
        number: as 2.
        dialer: the link to it.
        members: which store serves as which shard.
    """

    def __init__(self, number: int, dialer: "Dialer[FromShard]", members: Members) -> None:
        self.name: Final = f"shard-{number}"
        self.dialer: Final = dialer
        self._number = number
        self._members = members
        self._is_enrolled = False  # in this session
        self._enrolling = 0  # the request
        self._known: dict[int, Queue] = {}  # all that the shard may have
        self._dropped: list[int] = []
        self._unused: list[int] = []
        self._out_of_service: dict[int, str] = {}
        self._request = 0
        self._queues: dict[int, Queue] = {}
        self._given: set[int] = set()  # of the queues, those the shard has answered for in this session
        self._asked: set[int] = set()  # of the queues, those in an Assign that is not answered yet
        self._to_assign: list[Queue] = []  # of those asked for, what goes into the next Assign
        self._to_condemn: dict[int, tuple[bool, bool, Condemned]] = {}
        self._to_drop: dict[int, Dropped | None] = {}
        self._givers: dict[int, Given] = {}
        self._assigns: dict[int, list[int]] = {}
        self._condemns: dict[int, int] = {}
        self._drops: dict[int, int] = {}
        self._to_prepare: dict[int, _Preparation] = {}
        self._to_conclude: dict[int, list[int]] = {}
        self._prepares: dict[int, int] = {}
        self._concludes: dict[int, int] = {}
        self._concluded: list[int] = []
        self._refused: list[int] = []  # of those to conclude
        self._conclude_again_at = 0.0
        self._asked_once: dict[int, Heard] = {}
        self.copying: Copying | None = None

    @property
    def is_open(self) -> bool:
        """Whether the shard is there, and the one that belongs there."""
        return self._is_enrolled and self.dialer.is_open

    def keep(self, queue: Queue) -> None:
        """Count a queue among this shard's; it is told with the next session."""
        self._queues[queue.id] = self._known[queue.id] = queue

    def give(self, queue: Queue, given: Given) -> None:
        """Make sure that the shard has a queue. `given` is called once, maybe at once, unless given up before."""
        if queue.id in self._given:
            given(None)
            return
        self._givers[queue.id] = given
        self._queues[queue.id] = self._known[queue.id] = queue
        if self.is_open and queue.id not in self._asked:
            self._assign(queue)

    def give_up(self, queue: int) -> None:
        """Wait no longer for the shard's answer about a queue. It stays the shard's."""
        self._givers.pop(queue, None)

    def condemn(self, queue: int, if_unused: bool, if_empty: bool, condemned: Condemned) -> None:
        """Ask whether a queue may be deleted, now or when the shard is back. `condemned` is called once, unless the
        queue is pardoned before.
        """
        self._to_condemn[queue] = (if_unused, if_empty, condemned)
        if self.is_open:
            self._send_condemn(queue)

    def pardon(self, queue: int) -> None:
        """Wait no longer for the shard's answer about a condemnation; should it have happened, it is lifted."""
        if self._to_condemn.pop(queue, None) is not None and self.is_open and queue in self._queues:
            self._assign(self._queues[queue])

    def drop(self, queue: int, dropped: Dropped | None = None) -> None:
        """Have a queue and its messages removed, now or when the shard is back."""
        self._to_drop[queue] = dropped
        if self.is_open:
            self._send_drop(queue)

    def take_away(self, queue: int) -> None:
        """Count a queue no longer among this shard's; a drop follows."""
        self._queues.pop(queue, None)
        self._given.discard(queue)

    def answer_no_longer(self, queue: int) -> None:
        """Wait no longer for the shard's answer about a drop. It stays to be dropped."""
        if queue in self._to_drop:
            self._to_drop[queue] = None

    def prepare(self, transaction: int, attempts: list[int], counted: Counted) -> None:
        """Ask how many messages of these attempts are there, now or when the shard is back. `counted` is called once,
        unless it is no longer asked before.
        """
        self._to_prepare[transaction] = _Preparation(attempts, counted)
        if self.is_open:
            self._send_prepare(transaction)

    def prepare_no_longer(self, transaction: int) -> None:
        """Wait no longer for the shard's counts."""
        self._to_prepare.pop(transaction, None)

    def conclude(self, transaction: int, attempts: list[int]) -> None:
        """Have a decision followed, now or when the shard is back."""
        self._to_conclude[transaction] = attempts
        if self.is_open:
            self._send_conclude(transaction)

    def ask_once(self, message: Hold | Copy, heard: Heard) -> None:
        """Ask in this session, and in no other. `heard` is called once, with None where the session has ended."""
        if not self.is_open:
            heard(None)
            return
        self._post_assign()
        self._request += 1
        self._asked_once[self._request] = heard
        self.dialer.post(msgspec.structs.replace(message, request=self._request))

    def take_concluded(self) -> list[int]:
        """The transactions whose decision the shard has followed since the last call."""
        concluded, self._concluded = self._concluded, []
        return concluded

    def out_of_service(self, queue: int) -> str:
        """Why a queue cannot be deleted now: something stored of it is damaged; "" where it can."""
        return self._out_of_service.get(queue, "")

    def take_unused(self) -> list[int]:
        """The queues that the shard has called unused since the last call."""
        unused, self._unused = self._unused, []
        return unused

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
                case OutOfService():
                    self._out_of_service[event.queue] = event.text
                case Copying():
                    self.copying = event
                case Unused():
                    self._unused.append(event.queue)
                case Identity():
                    self._on_identity(event)
                case LinkLost():
                    self._on_lost()
        return self.dialer.more

    def flush(self) -> None:
        """Send what was said; queues given since the last time go in one message."""
        self._post_assign()
        self.dialer.flush()

    def tick(self, now: float) -> None:
        """Keep the link alive."""
        if self.dialer.tick(now):
            self._on_lost()
        if now >= self._conclude_again_at:
            self._conclude_again_at = now + CONCLUDE_AGAIN_SECONDS
            refused, self._refused = self._refused, []
            for transaction in refused:
                self._send_conclude(transaction)

    def _on_identity(self, said: Identity) -> None:
        """Who is there is known: it gets what it has missed, or is sent away."""
        queues = {queue.id: (queue.vhost, queue.name) for queue in self._known.values()}
        durable = sum(queue.durable and not queue.owner for queue in self._queues.values())
        known = Expected(queues, durable, frozenset(self._to_drop), len(self._to_conclude))
        try:
            generation = self._members.enroll(self._number, said, known)
        except ShardRefused as refused:
            _log.error("%s is refused: %s", self.name, refused)
            self.dialer.post(Expel(str(refused)))
            return
        self._is_enrolled = True
        self._request += 1
        self._enrolling = self._request
        self.dialer.post(Enroll(self._request, self._members.broker, generation))
        self._tell_all()

    def _tell_all(self) -> None:
        for queue in self._queues.values():
            self._assign(queue)
        for queue_id in self._to_condemn:
            self._send_condemn(queue_id)
        for queue_id in self._to_drop:
            self._send_drop(queue_id)
        for transaction in self._to_conclude:
            self._send_conclude(transaction)
        for transaction in self._to_prepare:
            self._send_prepare(transaction)

    def _on_lost(self) -> None:
        self._out_of_service.clear()
        self._is_enrolled = False
        self._enrolling = 0
        self.copying = Copying(0, 0, fault=f"{self.name} went away")
        asked, self._asked_once = self._asked_once, {}
        for heard in asked.values():
            heard(None)
        self._given.clear()
        self._asked.clear()
        self._assigns.clear()
        self._to_assign.clear()
        self._condemns.clear()
        self._drops.clear()
        self._prepares.clear()
        self._concludes.clear()
        self._refused.clear()

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
        elif answer.request in self._condemns:
            asked = self._to_condemn.pop(self._condemns.pop(answer.request), None)
            if asked is not None:
                asked[2](refusal)
        elif answer.request in self._drops:
            self._on_dropped(answer)
        elif answer.request in self._prepares:
            self._on_counted(answer)
        elif answer.request in self._concludes:
            self._on_concluded(answer)
        elif answer.request in self._asked_once:
            self._asked_once.pop(answer.request)(answer)
        elif answer.request == self._enrolling:
            if refusal is not None:
                raise StartupRefused(
                    f"{self.dialer.address}: {refusal.text}; this coordinator is of broker "
                    f"{self._members.broker}, generation {self._members.generation}"
                )
            self._members.heard(self._number)

    def _on_dropped(self, answer: Answer | Refusal) -> None:
        queue = self._drops.pop(answer.request)
        dropped = self._to_drop.pop(queue, None)
        if isinstance(answer, Refusal):
            self._to_drop[queue] = None  # asked again in the next session
        else:
            self._dropped.append(queue)
            self._known.pop(queue, None)
        if dropped is not None:
            dropped(answer if isinstance(answer, Refusal) else answer.result)

    def _on_concluded(self, answer: Answer | Refusal) -> None:
        transaction = self._concludes.pop(answer.request)
        if isinstance(answer, Refusal):
            self._refused.append(transaction)
        else:
            del self._to_conclude[transaction]
            self._concluded.append(transaction)

    def _on_counted(self, answer: Answer | Refusal) -> None:
        transaction = self._prepares.pop(answer.request)
        preparation = self._to_prepare.get(transaction)
        if preparation is not None and preparation.request == answer.request:  # not of an earlier one, given up
            del self._to_prepare[transaction]
            preparation.counted(answer if isinstance(answer, Refusal) else answer.result)

    def _assign(self, queue: Queue) -> None:
        self._asked.add(queue.id)
        self._to_assign.append(queue)

    def _post_assign(self) -> None:
        if self._to_assign:
            queues, self._to_assign = self._to_assign, []
            self._request += 1
            self._assigns[self._request] = [queue.id for queue in queues]
            self.dialer.post(AssignQueue(self._request, queues))

    def _send_condemn(self, queue: int) -> None:
        self._post_assign()  # what was said first is done first
        self._request += 1
        self._condemns[self._request] = queue
        if_unused, if_empty, _ = self._to_condemn[queue]
        self.dialer.post(PrepareDelete(self._request, queue, if_unused, if_empty))

    def _send_drop(self, queue: int) -> None:
        self._post_assign()
        self._request += 1
        self._drops[self._request] = queue
        self.dialer.post(DropQueue(self._request, queue))

    def _send_prepare(self, transaction: int) -> None:
        self._post_assign()
        self._request += 1
        self._prepares[self._request] = transaction
        preparation = self._to_prepare[transaction]
        preparation.request = self._request
        self.dialer.post(Prepare(self._request, transaction, preparation.attempts))

    def _send_conclude(self, transaction: int) -> None:
        self._post_assign()  # what is to be in a queue finds it there
        self._request += 1
        self._concludes[self._request] = transaction
        self.dialer.post(FollowDecision(self._request, transaction, self._to_conclude[transaction]))
