"""One pass of a shard: what has come is applied, deliveries are decided, all of it is committed, then answered.

Answers, confirms and deliveries are posted as they are decided and flushed after the commit: nothing leaves this
process before what it rests on is on disk. Some deliveries rest on nothing in their pass (early_deliveries.py),
and answers to declarations and deletions rest on the coordinator's disk.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener, Peer, Responder
from shardmq.bus.messages.base import Call
from shardmq.bus.messages.shard import Alarm, ShardRequest, ToShard
from shardmq.errors import RowDamaged
from shardmq.runtime.clock import SteadyClock
from shardmq.runtime.memory import memory_default
from shardmq.runtime.notify import Heartbeat
from shardmq.runtime.waiting import WaitingReport
from shardmq.runtime.watermarks import Watermark, WatermarkMonitor
from shardmq.shards.answers import Answers
from shardmq.shards.early_deliveries import Events
from shardmq.shards.failed_reads import guarded
from shardmq.shards.handlers.atomic_commit import AtomicCommits
from shardmq.shards.handlers.backup import StoreCopies
from shardmq.shards.handlers.consume import Consuming
from shardmq.shards.handlers.dead_letters import DeadLetterSender
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.enrolment import Enrolment
from shardmq.shards.handlers.partitions.groups import Groups
from shardmq.shards.handlers.partitions.pulls import Pulls
from shardmq.shards.handlers.publish import Publishing
from shardmq.shards.handlers.queues import Administration
from shardmq.shards.handlers.reads import Reads
from shardmq.shards.handlers.reservations import Reservations
from shardmq.shards.handlers.searches import Searches
from shardmq.shards.handlers.statistics.status import Status
from shardmq.shards.handlers.transactions import Transactions
from shardmq.shards.pass_size import bytes_of, is_small
from shardmq.shards.queues.compaction import Compactor
from shardmq.shards.queues.subqueue import EXPIRE_BATCHES
from shardmq.shards.segments.segment import Segment
from shardmq.shards.state.deduplication import ProducerSequences
from shardmq.shards.state.hosted_queue import make_queue, until_told
from shardmq.shards.state.shard import COORDINATOR, GATEWAY, PeerState, ShardState
from shardmq.shards.storage.recovery import StoredState, stored_queues
from shardmq.shards.storage.schema import NUMBER, STAGED_DATABASES, number_of
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_buffer import WriteBuffer

TICK_SECONDS: Final = 0.1
TICK_AT_REST_SECONDS: Final = 0.5
"""Between ticks with nothing to look after but the links, which ping once a second."""

PASS_BYTES: Final = 8 << 20
"""Bytes of records after which a pass takes no more: who came first waits for the commit of all."""

Event = tuple[Peer, Any]


class ShardLoop:
    """The state of a shard, and what it does with each message.

    Args:
        name: of the process, as `shard-0`.
        store: what is on disk.
        listener: where messages come from.
        memory_bytes: what bodies in memory may take.
        rss_bytes_max: resident memory above which publishers are to wait; None for the default.
        disk_free_bytes_min: free bytes of the disk below which they are, too; None for the default.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        listener: Listener[ToShard],
        memory_bytes: int,
        rss_bytes_max: int | None = None,
        disk_free_bytes_min: int | None = None,
    ) -> None:
        self._name = name
        self._store = store
        self._listener = listener
        self._buffer = WriteBuffer(store, memory_bytes)
        limit = memory_default() if rss_bytes_max is None else rss_bytes_max
        self._watermarks = WatermarkMonitor(name, limit, "consume what is queued")
        self._watermarks.watch_disk(Path(store.file).parent, disk_free_bytes_min)
        contents = store.load()
        self._state = state = ShardState(name, store, self._buffer, SteadyClock.resumed(contents.clock))
        self._compactor = Compactor(self._buffer, state.take_out)
        self._delays = DelayedMessages(state)
        self._groups = Groups(state, self._delays)
        self._transactions = Transactions(state, self._delays, self._groups)
        self._publishing = Publishing(state, self._delays, self._transactions)
        self._answers = Answers(self._buffer, self._publishing, listener)
        self._consuming = Consuming(state, self._delays, self._groups)
        self._dead_letters, self._reservations = DeadLetterSender(state), Reservations(state)
        self._reads, searches, self._pulls = Reads(state, self._reservations), Searches(state), Pulls(state)
        self._turns = state.slices, self._transactions, searches, self._reads, self._pulls
        dropped = self._load(contents)
        self._enrolment = Enrolment(state, store.file, store.identity, self._transactions.newest)
        self._copies = StoreCopies(store, self._buffer.demand)
        self.drop = self._copies.close  # for an owner that may write nothing more
        self._enrolment.guard(listener)
        self._administration = Administration(
            state, self._delays, self._dead_letters, self._reservations, self._enrolment, dropped
        )
        self._status = Status(state, self._watermarks, self._delays, self._transactions, self._administration)
        self._more = self.is_conversing = False
        self._is_stirred, self._tick_at = True, time.monotonic()
        self._waiting, self._heartbeat = WaitingReport(self._missing), Heartbeat(self._wrong)
        self._handlers: dict[type, Callable[[Any, Any], None]] = {
            **self._publishing.handlers,
            **self._consuming.handlers,
            **self._dead_letters.handlers,
            **AtomicCommits(state, self._consuming).handlers,
            **self._administration.handlers,
            **self._transactions.handlers,
            **self._enrolment.handlers,
            **self._copies.handlers,
            **self._reservations.handlers,
            **self._reads.handlers,
            **searches.handlers,
            **self._pulls.handlers,
            **self._groups.handlers,
            **self._status.handlers,
            Call: self._on_call,
            LinkOpened: self._opened,
            LinkLost: self._lost,
        }
        self._handlers |= guarded(self._handlers)

    def _load(self, contents: StoredState) -> list[tuple[int, list[Segment]]]:
        """Make the queues that were stored; returns what is left of those that were being deleted.

        What is damaged of a queue is not deleted: with it, the rest of a deleted one waits for the repair.
        """
        state = self._state
        known = {declared.id: declared for declared in contents.queues}
        for damage in contents.damaged:
            if damage.database in STAGED_DATABASES:
                state.quarantine.hold(number_of(damage.key[: NUMBER.size]), damage)
            elif not state.quarantine.add_group(known.get(damage.queue or 0), damage):
                state.take_out(damage, known.get(damage.queue or 0))
        out = state.quarantine.queues
        stored = stored_queues(contents, out.keys())
        waiting, delayed = self._delays.scan(stored)
        self._reservations.scan(stored, [each for each in contents.reservations if each.queue not in out])
        for declared in contents.queues:
            if declared.id in out:
                continue
            found = stored[declared.id]
            found.delayed = delayed.get(declared.id, [])
            try:
                hosted = state.add(make_queue(until_told(declared), self._buffer, state.clock, found))
            except RowDamaged as damage:  # some queues read messages to count their bytes
                state.take_out(damage, declared)
                continue
            self._groups.load(hosted, found.cursors)
            if declared.id in waiting:
                self._delays.adopt(hosted, *waiting[declared.id])
            self._reservations.adopt(declared.id)
            state.active[declared.id] = hosted
        for queue, producer, ranges in contents.producers:
            if queue in state.queues:
                hosted = state.queues[queue]
                hosted.producers = hosted.producers or ProducerSequences()
                hosted.producers.load(producer, ranges)
        self._transactions.load(contents)
        self._buffer.note(state.clock.note())
        return [(number, stored[number].segments) for number in contents.dropped if number in stored]

    def wait_seconds(self) -> float:
        """Return how long a pass may be put off if nothing comes."""
        state = self._state
        if self._more or self._listener.more or state.behind or (self._copies.is_engaged and self._copies.is_behind):
            return 0.0
        now = time.monotonic()
        due_at = min(self._tick_at, self._buffer.due_at, self._answers.due_at)
        wait = due_at - now if due_at > now else 0.0
        for part in self._turns:
            if part.late and (other := part.wait_seconds(now)) is not None and other < wait:
                wait = other
        if (other := state.schedule.wait_seconds()) is not None and other < wait:
            wait = other
        return wait

    def run_pass(self, has_come: bool = False) -> bool:
        """Carry out one pass. Returns whether anything was sent.

        Args:
            has_come: something is known to have come.
        """
        now = self._buffer.now = time.monotonic()
        if self._listener.is_settled:
            for peer, lost in self._listener.resume(f"{self._name} is not led by another host after all"):
                self._lost(peer, lost)
        state, copies = self._state, self._copies
        state.schedule.begin()
        for part in self._turns:
            if part.late:
                part.begin()
        if state.behind:
            state.go_on()
        events: list[Event] = self._listener.receive(has_come)
        self.is_conversing = is_small(events)
        while self._listener.more and bytes_of(events) < PASS_BYTES:
            events += self._listener.receive()
        if copies.is_engaged:
            events = copies.hold_back(events, now)
        self._carry_out(events)
        if state.schedule.run_due(state.take_out) or events:
            self._is_stirred = True
        due = now >= self._tick_at
        has_sent = self._finish(due, events)
        if copies.is_engaged and copies.committed():
            has_sent = self._listener.flush() or has_sent
        self._store.rest(now, bool(events))
        if events:
            state.measures.ended(len(events), time.monotonic() - now)
        if due:
            self._tick(now)
        return has_sent

    def _carry_out(self, events: list[Event]) -> None:
        handlers = self._handlers
        for peer, message in events:
            try:
                handlers[type(message)](peer, message)
            except RowDamaged as damage:
                self._state.refuse_damaged(peer, message, damage)

    def shut(self, reason: str) -> None:
        """Refuse publishes in the next pass, for a reason; "" takes them in again."""
        self._state.shut_for(reason)

    def _tick(self, now: float) -> None:
        self._tick_at = now + (TICK_SECONDS if self._is_stirred else TICK_AT_REST_SECONDS)
        self._is_stirred = self._store.is_pending
        self._copies.tick(now)
        space = self._store.space
        room = space.look()
        for mark in self._watermarks.look(now, room, space.left <= 0):
            for peer in self._state.peers:
                self._alarm(peer, mark)
        if not self._copies.is_copying:
            self._store.give_back(now, room, self._watermarks.is_pressed)
        for peer, client in self._state.peers.items():
            client.common.tick(peer.post)
        for peer, lost in self._listener.tick(time.monotonic()):
            self._lost(peer, lost)
        self._waiting.look(now)
        self._heartbeat.beat(now)
        self._state.rates.tick(now)

    def _missing(self) -> list[str]:
        """Who has not called that is to: a shard knows no addresses but its own."""
        called = {peer.role for peer in self._listener.peers}
        return [f"the {role} to call {self._listener.address}" for role in (COORDINATOR, GATEWAY) if role not in called]

    def _wrong(self) -> list[str]:
        alarms = [mark.text for mark in self._watermarks.on.values()]
        return [*(f"waits for {whom}" for whom in self._missing()), *alarms]

    def _finish(self, collect: bool, events: Events = ()) -> bool:
        """Deliver, commit, answer.

        Args:
            collect: have the compactor look for work.
            events: what came in this pass.

        Returns:
            Whether anything was sent.
        """
        state = self._state
        damages = self._deliver()
        if self._pulls.waiting or state.gone:
            self._pulls.look()
        state.rates.touched.update(state.active)
        state.active.clear()
        if self._publishing.forwarding.published:
            self._publishing.tell_gateways()
        if not damages:
            self._answers.send_early(events)
        for found in damages:
            state.take_out(found)
        if self._consuming.permitted:
            self._consuming.end_permits()
        if self._dead_letters.waiting:
            self._dead_letters.send()
        if collect or self._more:
            self._more = self._store.space.left > 0 and self._compactor.work()  # it writes before it makes room
        delays = self._delays
        if delays.pending or delays.others or delays.unwritten:
            delays.note(self._buffer.now)
        if state.unrecorded.queues:
            self._administration.record_used()
        return self._answers.commit(events, self.is_conversing)

    def _deliver(self) -> list[RowDamaged]:
        """Deliver what queues have to which something happened; returns what was found damaged."""
        state = self._state
        damages: list[RowDamaged] = []
        for hosted in state.active.values():
            try:
                hosted.consumers.deliver()
                queue = hosted.queue
                queue.seal()
                due_ms = queue.next_expiry_ms
            except RowDamaged as damage:
                damages.append(damage)
                continue
            if due_ms is not None and ((look := hosted.expiry_look) is None or due_ms < look.due_ms):
                state.schedule.cancel(look)
                hosted.expiry_look = state.schedule.at(due_ms, partial(self._expire, queue.id))
            if queue.outbox is not None or (hosted.readers is not None and hosted.readers.partition.letters):
                self._dead_letters.look(hosted)
        return damages

    def _expire(self, number: int) -> None:
        """The message at a queue's head may have waited for too long."""
        hosted = self._state.queues.get(number)
        if hosted is not None:
            hosted.expiry_look = None
            hosted.queue.expire(self._state.schedule.now_ms, EXPIRE_BATCHES)
            self._state.active[number] = hosted

    def hand_over(self, reason: str) -> None:
        """The last passes before another replica leads: callers hear what was taken in, and keep the rest for that.

        They refuse publishes for a reason, as `shut` does; "" takes them in.
        """
        self.shut(reason)
        self.run_pass()
        self._end_exactly()
        self._listener.settle(f"{self._name} is about to be led by another host")

    def stop(self) -> None:
        """The last pass: everything that is known goes to disk exactly."""
        self._copies.close()
        self._end_exactly()

    def _end_exactly(self) -> None:
        self._state.active.clear()  # nothing is handed out any more: the marks below are exact
        for hosted in self._state.queues.values():
            hosted.mark_exactly()
        self._buffer.note(self._state.clock.note())
        self._buffer.demand()
        self._finish(collect=False)
        self._listener.flush()

    def _opened(self, peer: Peer, _: LinkOpened) -> None:
        as_here = self._buffer.cache.bytes_max
        client = self._state.peers.setdefault(peer, PeerState(as_here))  # a caller that calls twice is told of twice
        peer.shorten = client.common.shorten
        if peer.role == COORDINATOR:
            self._enrolment.opened(peer)
            self._state.say_unused(peer)
            self._state.say_out_of_service(peer)
        elif peer.role == GATEWAY:
            self._dead_letters.opened(peer)
            for mark in self._watermarks.on.values():
                self._alarm(peer, mark)
            self._state.say_out_of_service(peer)
            self._state.say_gateways()

    def _lost(self, peer: Peer, _: LinkLost) -> None:
        self._enrolment.lost(peer)
        self._copies.lost(peer)
        self._pulls.lost(peer)
        client = self._state.peers.pop(peer, None)
        self._publishing.lost(peer)
        self._dead_letters.lost(peer)
        if client is not None:
            self._consuming.lost(client)
        if peer.role == GATEWAY:
            self._state.say_gateways()

    def _alarm(self, peer: Peer, mark: Watermark) -> None:
        if peer.role == GATEWAY:
            peer.post(Alarm(mark.resource, mark.is_on, mark.text))

    def _on_call(self, peer: Peer, call: Call[ShardRequest]) -> None:
        if self._enrolment.superseded and peer in self._enrolment.superseded:
            return
        self._handlers[type(call.message)](Responder(peer, call.request), call.message)

    def table(self) -> dict[str, Any]:
        """Return the state of this process, as `shardmq status` shows it."""
        return self._status.table()
