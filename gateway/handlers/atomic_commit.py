"""Publishes and settlements of one channel, committed together: all of it is visible, or nothing.

    publishes to one shard, or none   AtomicCommit ─► that shard: all of it and what is settled there, in one commit of
    (most of them)                    its store. Then what is settled on other shards.

    publishes to several shards,      begin ─► staged on each ─► sealed ─► committed by the coordinator: one decision,
    or many to one                    which every shard follows. Then what is settled, on each shard.

Where all is on one shard, publishes and settlements stand or fall together, whoever dies. Where it is not, or is many
(AT_ONCE_BYTES), publishes are decided first, and stand or fall together; if a shard or this gateway dies, or the client
goes, between the decision and what is settled on a shard, then messages that were settled there come again, marked
redelivered. None is lost.

Many are routed and staged in pieces: others are served in between, here and on the shards. What a full queue may refuse
is not staged while it is on one shard.

A commit is answered when the decision is on disk and what it publishes is in its queues; with several shards also where
one of them is away after the decision: it follows as soon as it is back. A commit that is refused has left nothing
behind, except where its error says that the outcome is not certain: a shard went away with the question, or the
coordinator with the decision. Even then it was whole or not at all.

What a full queue refuses (x-overflow reject-publish) refuses the commit, where it publishes to one shard. Of what is
published to several, such a queue takes all, beyond its limit, as in all transactions of the broker.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.shard import Ack, AtomicCommit, Nack, Publish
from shardmq.bus.messages.transactions import Seal
from shardmq.errors import (
    NotFound,
    PreconditionFailed,
    ReplyCode,
    RequestError,
    StillPreparing,
    Timeout,
    Unavailable,
)
from shardmq.gateway.handlers.replies import from_all
from shardmq.gateway.links.consumer import ConsumerLink
from shardmq.gateway.session.client import Client
from shardmq.gateway.state.passes import TimeSlice
from shardmq.gateway.state.routes import Route
from shardmq.message.record_batch import RecordBatch
from shardmq.topology.commands import AbortTransaction, BeginTransaction, CommitTransaction
from shardmq.topology.entities import RESERVED_TRANSACTIONS

TIMEOUT_MS: Final = 30_000
"""After so long the coordinator ends a transaction whose gateway is gone. Staging what one may hold takes seconds; a
commit for which it takes longer is refused."""

ATTEMPT: Final = 1
"""The number of a transaction's only attempt."""

OVERFLOW: Final = "x-overflow"
"""The queue's argument by which it may refuse what is published to it."""

NAME_BYTES: Final = 16
"""Random bytes in a transaction's name."""

AT_ONCE_BYTES: Final = 4 << 20
"""What is published to one shard in one piece, which holds up others there for some 20 ms."""

BATCH_OVERHEAD_BYTES: Final = 2048
"""What a record batch costs beside its bytes, where those are counted: the time it takes to be dealt with."""

STAGED_WINDOW_BYTES: Final = 1 << 20
"""What of a commit is on its way to shards to be staged there: others' publishes wait behind so much."""


class BufferedPublish(NamedTuple):
    """Messages of one kind with one route, which have not been sent.

    Attributes:
        batch: the messages; time, origin and serial are written into copies of it when they are sent.
        route: where they go.
        is_mandatory: whether they return where no queue is left to take them when they are committed.
    """

    batch: RecordBatch
    route: Route
    is_mandatory: bool


class Settlements(NamedTuple):
    """Acks and nacks of one shard's consumers."""

    settled: list[Ack]
    returned: list[Nack]


class ChannelCommit:
    """One commit, under way.

    Args:
        client: whose it is.
        buffered: what is published, in order.
        settlements: what is settled, by shard.
        reply: called once, with the mandatory batches that no queue took, in order, or the error that refused it.
        is_wanted: whether the client is still there; asked until something of it was sent.
    """

    def __init__(
        self,
        client: Client,
        buffered: Sequence[BufferedPublish],
        settlements: dict[ConsumerLink, Settlements],
        reply: Reply,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._state = client.state
        self._buffered = buffered
        self._settlements = settlements
        self._reply = reply
        self._is_wanted = is_wanted
        self._publishes: dict[ConsumerLink, list[Publish]] = {}
        self._bytes = 0
        self._may_be_refused = False
        self._unroutable: list[BufferedPublish] = []  # found by the last routing

    def begin(self) -> None:
        """Carry it out."""
        self._publishes = {}
        self._bytes = 0
        self._may_be_refused = False
        self._unroutable = []
        self._route(iter(self._buffered))

    def _route(self, buffered: Iterator[BufferedPublish]) -> None:
        """Send batches on their routes, and go on in another pass where that takes long."""
        time_slice = TimeSlice()
        for each in buffered:
            self._route_one(each)
            if time_slice.is_over:
                self._state.time_slices.wait(partial(self._route, buffered))
                return
        if self._is_wanted():
            self._carry_out()
        else:
            self._reply(Unavailable("the client is gone; nothing of it was carried out"))

    def _carry_out(self) -> None:
        links = self._publishes or self._settlements
        if len(self._publishes) > 1 or (self._bytes > AT_ONCE_BYTES and not self._may_be_refused):
            _Staged(self._client, self._publishes, self._unless_rerouted(self._decided)).begin()
        elif links:
            link = next(iter(links))
            settled, returned = self._settlements.get(link, ([], []))
            link.ask(AtomicCommit(self._publishes.get(link, []), settled, returned), self._carried_out(link))
        else:
            self._reply(self._unroutable)

    def _route_one(self, buffered: BufferedPublish) -> None:
        """Add messages to what goes to the shards of their route, for those queues that still exist.

        A queue that was deleted meanwhile counts as having had them. Where none is left, mandatory messages return.
        """
        state, batch = self._state, buffered.batch
        serial = state.next_serial
        state.next_serial = serial + batch.count
        is_taken = False
        for link, queues in buffered.route:
            known = [queue for number in queues if (queue := state.topology.queue_by_id(number)) is not None]
            if known:
                there = queues if len(known) == len(queues) else tuple([queue.id for queue in known])
                going = replace(batch, timestamp_ms=state.now_ms, origin=state.origin, serial=serial)
                self._publishes.setdefault(link, []).append(Publish(there, going))
                self._bytes += cost_of(going)
                if [queue for queue in known if OVERFLOW in state.topology.policies.arguments(queue)]:
                    self._may_be_refused = True
                is_taken = True
        if buffered.is_mandatory and not is_taken:
            self._unroutable.append(buffered)

    def _carried_out(self, link: ConsumerLink) -> Reply:
        def take(outcome: Outcome) -> None:
            if not isinstance(outcome, RequestError):
                self._settlements.pop(link, None)
            self._decided(outcome)

        return self._unless_rerouted(take)

    def _unless_rerouted(self, then: Reply) -> Reply:
        """A reply that routes and sends everything again where a queue was deleted meanwhile and nothing was done."""
        before = self._state.topology.version

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, NotFound) and self._state.topology.version != before:
                self.begin()
            else:
                then(outcome)

        return take

    def _decided(self, outcome: Outcome) -> None:
        """Settle what remains, once the publishes are in their queues, or reply with the error that refused them.

        A settlement fails only where the shard died or the messages returned to their queue: they are delivered again.
        """
        if isinstance(outcome, RequestError):
            self._reply(outcome)
            return
        if not self._settlements:
            self._reply(self._unroutable)
            return
        missing = len(self._settlements)

        def settled(_outcome: Outcome) -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                self._reply(self._unroutable)

        for link, (done, returned) in list(self._settlements.items()):
            link.ask(AtomicCommit([], done, returned), settled)


def _numbered(publishes: dict[ConsumerLink, list[Publish]]) -> Iterator[tuple[ConsumerLink, Publish, int]]:
    """Record batches with where they go, of all shards by turns, and the number of each one's first message there."""
    nexts = dict.fromkeys(publishes, 1)
    for each in zip_longest(*publishes.values()):
        for link, publish in zip(publishes, each, strict=True):
            if publish is not None:
                yield link, publish, nexts[link]
                nexts[link] += publish.batch.count


def cost_of(batch: RecordBatch) -> int:
    """What a record batch counts for, in bytes, where commits are cut into pieces."""
    return len(batch.records) + BATCH_OVERHEAD_BYTES


class _Staged:
    """What is published to several shards, or much to one: staged there, then decided by the coordinator.

    Args:
        client: whose it is.
        publishes: record batches, by shard.
        decided: called once, with None or the error that refused it.
    """

    def __init__(self, client: Client, publishes: dict[ConsumerLink, list[Publish]], decided: Reply) -> None:
        self._client = client
        self._publishes = publishes
        self._decided = decided
        self._name = RESERVED_TRANSACTIONS + secrets.token_hex(NAME_BYTES)
        self._number = 0
        self._is_asked = False  # for the decision
        self._rest: Iterator[tuple[ConsumerLink, Publish, int]] = _numbered(publishes)  # what was not sent
        self._is_all_sent = self._is_resting = False
        self._sizes: list[int] = []  # of what was sent
        self.more_confirmed, self.is_confirming = 0, True
        self._missing = 0  # batches that were sent, and are not answered
        self._missing_bytes = 0
        self._refusal: RequestError | None = None

    def begin(self) -> None:
        """Carry it out."""
        client = self._client
        command = BeginTransaction(client.vhost, self._name, client.user, TIMEOUT_MS)
        client.perform(command, self._then(self._stage))

    def _then(self, step: Callable[[Any], None]) -> Reply:
        """A reply that takes the next step, if the one before has gone well."""

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, RequestError):
                self._give_up(outcome)
            else:
                step(outcome)

        return take

    def _stage(self, begun: tuple[int, bool]) -> None:
        self._number, _ = begun
        self._send()

    def _send(self) -> None:
        """Send some of it, as much as may be on its way, and not for longer than a turn."""
        self._is_resting = False
        time_slice = TimeSlice()
        while self._refusal is None and self._missing_bytes < STAGED_WINDOW_BYTES:
            if time_slice.is_over:
                self._is_resting = True
                self._client.state.time_slices.wait(self._send)
                break
            following = next(self._rest, None)
            if following is None:
                self._is_all_sent = True
                break
            link, publish, sequence = following
            size = cost_of(publish.batch)
            self._sizes.append(size)
            self._missing += 1
            self._missing_bytes += size
            staged = Publish(publish.queues, publish.batch, ATTEMPT, sequence, transaction=self._number)
            link.publish(self, len(self._sizes), staged, None, 0, False)
        self._client.state.changed()
        if self._is_all_sent and not self._missing and self._refusal is None:
            self._seal()

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        """Count batches as staged."""
        for first, last in requests:
            self._missing -= last + 1 - first
            self._missing_bytes -= sum(self._sizes[first - 1 : last])
        if self._refusal is not None:
            if not self._missing:
                self._give_up(self._refusal)
        elif not self._is_all_sent:
            if not self._is_resting and self._missing_bytes <= STAGED_WINDOW_BYTES // 2:
                self._is_resting = True
                self._client.state.time_slices.wait(self._send)
        elif not self._missing:
            self._seal()

    def refuse(self, first: int, last: int, code: int, text: str, _taken: int = 0) -> None:
        """Give up: batches `first` to `last` are not staged, or it is not certain."""
        self._refusal = NotFound(text) if code == ReplyCode.NOT_FOUND else Unavailable(text)
        self.confirm([(first, last)])

    def _seal(self) -> None:
        join = self._then(self._commit)
        take = from_all(len(self._publishes), join, lambda sums: sum([messages for messages, _ in sums]))
        for link in self._publishes:
            link.ask(Seal(self._number, ATTEMPT), take)

    def _commit(self, messages: int) -> None:
        client, self._is_asked = self._client, True
        self._insist(CommitTransaction(client.vhost, self._name, self._number, client.user, [(ATTEMPT, messages)]))

    def _insist(self, command: CommitTransaction, bytes_left: float = math.inf) -> None:
        """Ask for the commit, again and again while shards get on with reading what was staged for it."""
        ended = self._then(lambda _visible: self._decided(None))

        def take(outcome: Outcome) -> None:
            if isinstance(outcome, StillPreparing) and outcome.left < bytes_left:
                self._insist(command, outcome.left)
            else:
                ended(outcome)

        self._client.perform(command, take)

    def _give_up(self, refusal: RequestError | None) -> None:
        """Abort the transaction, unless it turns out that it was committed and only the answer was late."""

        def ended(outcome: Outcome) -> None:
            if self._is_asked and isinstance(outcome, PreconditionFailed):
                self._decided(None)
            elif self._is_asked and isinstance(outcome, RequestError):
                self._decided(Timeout(f"it was done or not, which is not certain: {outcome.text}"))
            else:
                self._decided(refusal)

        command = AbortTransaction(self._client.vhost, self._name, self._number, self._client.user)
        self._client.perform(command, ended)
