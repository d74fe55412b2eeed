"""Searches: messages of a queue or partition that fit filters, found in slices between other work.

    Search ──► a slice of a millisecond ──► pass ──► a slice ──► … ──► found enough, at the end, or time over ──► answer

A search looks at batches as they were when they were read; what is acknowledged meanwhile may still be found. Nothing
is kept from one answer to the next: who goes on says where, and who does not has ended the search.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack
import msgspec

from shardmq.bus.link import encode
from shardmq.bus.listener import Responder
from shardmq.bus.messages.reads import Found, FoundDead, Search, SearchDead
from shardmq.bus.messages.streams import Reading
from shardmq.errors import RequestError, RowDamaged, Unavailable
from shardmq.message.record_batch import RecordBatch, record_ends
from shardmq.search.deaths import DeathGroups
from shardmq.search.matching import Matcher
from shardmq.shards.failed_reads import refuse_failed
from shardmq.shards.queues.delivery import Delivery
from shardmq.shards.queues.queue import Queue
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.topics.cursor import offset_at
from shardmq.shards.topics.partition import Partition

SLICE_SECONDS: Final = 0.001
"""Searching in one pass, of all searches together: what comes meanwhile waits for so long."""

PAUSE_SECONDS: Final = 0.002
"""Between two slices, where anything came meanwhile: it finds the shard and its processor free most of the time."""

PAGE_SECONDS: Final = 0.25
"""An answer comes after about so long at the latest: it says how far the search is, and whoever is gone has it end."""

PATIENCE_SECONDS: Final = 1.0
"""So much longer a search looks through what it has read: to begin in the middle of a large batch costs time again."""

FOUND_BYTES_MAX: Final = 1 << 20
"""Records in one answer, and one message more."""

READ_BYTES: Final = 128 << 10
"""About how much is read at once, but a whole segment where there is one."""

READ_RANGES: Final = 512
"""Ranges of neighbouring messages read at once."""

AT_ONCE_BYTES: Final = 64 << 10
"""Records that are taken apart at once; larger batches are cut."""

AT_ONCE: Final = 256
"""Messages that are taken apart at once."""

RUNNING_MAX: Final = 8
"""Searches that have their slices in turns; each holds some segments in memory."""

WAITING_MAX: Final = 256
"""Searches that wait for one of these to be answered; more are refused."""

LEFT_RANGES: Final = 2000
"""Ranges that are counted to say what is left, some 0.5 ms; behind them, all that is ready counts as left."""

LAST: Final = 1 << 64
"""Above all messages' numbers."""


class Searches:
    """Answers searches.

    Args:
        state: the queues.

    Attributes:
        late: searches that are under way.
    """

    def __init__(self, state: ShardState) -> None:
        self._state = state
        self.late: deque[_Running] = deque()
        self._waiting: deque[tuple[Responder[Any], Search | SearchDead]] = deque()
        self._next_at = 0.0
        self._passes = 0  # that had brought something at the last slice
        self.handlers: dict[type, Callable[[Any, Any], None]] = {Search: self._take, SearchDead: self._take}

    def wait_seconds(self, now: float) -> float | None:
        """Return when the next slice is due, in seconds from now; None where there is no search."""
        return max(0.0, self._next_at - now) if self.late else None

    def _take(self, responder: Responder[Any], message: Search | SearchDead) -> None:
        """Take a search; it has its first slice in the next pass."""
        if len(self.late) < RUNNING_MAX:
            self._begin(responder, message)
        elif len(self._waiting) < WAITING_MAX:
            self._waiting.append((responder, message))
        else:
            text = f"{WAITING_MAX} searches wait for {self._state.name} already; search again in a moment"
            responder.refuse(Unavailable.code, text)

    def begin(self) -> None:
        """A pass begins: one search has its slice, and what is left of it is the next one's."""
        now = time.monotonic()
        if not self.late or now < self._next_at:
            return
        deadline = now + SLICE_SECONDS
        for _ in range(len(self.late)):
            search = self.late.popleft()
            if self._slice(search, deadline):
                self.late.append(search)
            if time.monotonic() >= deadline:
                break
        while self._waiting and len(self.late) < RUNNING_MAX:
            self._begin(*self._waiting.popleft())
        passes = self._state.measures.passes
        self._next_at = time.monotonic() + PAUSE_SECONDS if passes != self._passes else 0.0
        self._passes = passes

    def _begin(self, responder: Responder[Any], message: Search | SearchDead) -> None:
        hosted = self._state.found(responder, message.queue)
        if hosted is None or responder.peer not in self._state.peers:
            return
        try:
            self.late.append(_Running(responder, message, hosted.queue))
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
        except RowDamaged as damage:  # no handler catches that of a search that has waited
            self._state.take_out(damage)
            self._state.refuse_missing(responder, message.queue)
        except Exception as fault:  # noqa: BLE001  filters are anybody's texts
            refuse_failed(responder, message, fault)

    def _slice(self, search: "_Running", deadline: float) -> bool:
        """Search on until the deadline; returns whether there is more to do."""
        state, responder = self._state, search.responder
        if responder.peer not in state.peers:
            return False
        hosted = state.found(responder, search.message.queue)
        if hosted is None:
            return False
        try:
            state.catch_up(hosted)
            found = search.advance(hosted, deadline)
            if found is not None:
                responder.answer(msgspec.Raw(encode(found)))  # where that fails, it is this search that does
            return found is None
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
        except RowDamaged as damage:
            state.take_out(damage)
            state.refuse_missing(responder, search.message.queue)
        except Exception as fault:  # noqa: BLE001  it met anybody's filters and messages
            refuse_failed(responder, search.message, fault)
        return False


class _Chunk:
    """Neighbouring messages that are looked at together.

    Attributes:
        first: number of the first.
        batch: themselves.
        redelivered, deliveries: as in a delivery.
    """

    __slots__ = ("batch", "deliveries", "first", "redelivered")

    def __init__(self, first: int, redelivered: bool, deliveries: int, batch: RecordBatch) -> None:
        self.first = first
        self.redelivered = redelivered
        self.deliveries = deliveries
        self.batch = batch

    def part(self, place: int, record: bytes) -> Delivery:
        """One of its messages."""
        whole = self.batch
        batch = RecordBatch(
            whole.exchange,
            whole.routing_key,
            whole.flags,
            whole.timestamp_ms,
            whole.origin,
            whole.serial + place,
            1,
            record,
            whole.priority,
            whole.ttl_ms,
        )
        return Delivery(self.first + place, self.redelivered, self.deliveries, batch)


class _Running:
    """A search that is not answered yet.

    Args:
        responder: whom to answer.
        message: what was asked.
        queue: where.

    Raises:
        RequestError: a filter cannot be read.
        RowDamaged: a segment that had to be read is not what was written.
    """

    __slots__ = (
        "_chunks",
        "_found",
        "_found_bytes",
        "_groups",
        "_looked_at",
        "_looking",
        "_matcher",
        "_read",
        "_until",
        "message",
        "responder",
    )

    def __init__(self, responder: Responder[Any], message: Search | SearchDead, queue: Queue) -> None:
        self.responder = responder
        self.message = message
        self._matcher = Matcher(message.filters)
        self._read = message.first  # all below it was read
        if isinstance(queue, Partition) and message.filters.since_ms:
            self._read = max(message.first, offset_at(queue, Reading("time", message.filters.since_ms)))
        self._chunks: Iterator[_Chunk] = iter(())
        self._looking: Iterator[int] = iter(())
        self._found: list[Delivery] = []
        self._found_bytes = self._looked_at = 0
        self._groups = DeathGroups(message.ranges_max) if isinstance(message, SearchDead) else None
        self._until = time.monotonic() + PAGE_SECONDS

    def advance(self, hosted: HostedQueue, deadline: float) -> Found | FoundDead | None:
        """Look at messages until the deadline; returns the answer where it is complete."""
        queue = hosted.queue
        while True:
            for following in self._looking:
                now = time.monotonic()
                if self._is_enough() or now >= self._until + PATIENCE_SECONDS:
                    return self._answer(queue, following)
                if now >= deadline:
                    return None
            chunk = next(self._chunks, None)
            if chunk is not None:
                self._looking = self._look(chunk)
                continue
            if self._looked_at and time.monotonic() >= self._until:  # each page gets on, however late its turn came
                return self._answer(queue, self._read)
            ranges = ranges_from(queue, self._read)
            if not ranges:
                return self._answer(queue, None)
            shown = queue.show(ranges, {})
            self._read = shown[-1].first + shown[-1].batch.count
            self._chunks = _chunks(shown)

    def _is_enough(self) -> bool:
        """Whether the answer takes no more."""
        if isinstance(self.message, SearchDead):
            return self._groups is not None and self._groups.is_full
        return len(self._found) >= self.message.count or self._found_bytes >= FOUND_BYTES_MAX

    def _look(self, chunk: _Chunk) -> Iterator[int]:
        """Look at a chunk's messages; yields the number behind each that was looked at, or behind all of them."""
        batch, first = chunk.batch, chunk.first
        if not self._matcher.may_be_in(batch):
            self._looked_at += batch.count
            yield first + batch.count
            return
        if self._groups is not None:
            for place, death in enumerate(self._matcher.look_for_deaths(batch)):
                self._looked_at += 1
                if death is not None:
                    self._groups.add(first + place, death)
                yield first + place + 1
            return
        ends: list[int] = []
        for place, is_wanted in enumerate(self._matcher.look(batch)):
            self._looked_at += 1
            if is_wanted:
                ends = ends or record_ends(batch.records, batch.count)
                record = bytes(batch.records[ends[place - 1] if place else 0 : ends[place]])
                self._found.append(chunk.part(place, record))
                self._found_bytes += len(record)
            yield first + place + 1

    def _answer(self, queue: Queue, following: int | None) -> Found | FoundDead:
        left = 0
        if following is not None:
            ranges = [*islice(queue.between(following, LAST), LEFT_RANGES)]
            left = sum([end - start for start, end in ranges])
            if len(ranges) == LEFT_RANGES:
                left = max(left, queue.ready - self._looked_at)
        if self._groups is not None:
            return FoundDead(self._groups.groups(), self._looked_at, following, left, self._matcher.cut)
        return Found(self._found, self._looked_at, following, left, self._matcher.cut)


def ranges_from(queue: Queue, first: int) -> Ranges:
    """The ready messages from a number on that are read at once: whole segments, but for what lies before it."""
    ranges: Ranges = []
    end, each = first, 0
    size = 0
    for start, stop in queue.between(first, LAST):
        while start < stop:
            if start >= end:
                if size >= READ_BYTES or len(ranges) >= READ_RANGES:
                    return ranges
                end, each = queue.extent(start)
            part = min(stop, end)
            ranges.append((start, part))
            size += (part - start) * each
            start = part
        if len(ranges) >= READ_RANGES:
            break
    return ranges


def _chunks(shown: list[Delivery]) -> Iterator[_Chunk]:
    """What was read, in chunks that are looked at in well under a slice."""
    for first, redelivered, deliveries, batch in shown:
        if batch.count == 1 or (batch.count <= AT_ONCE and len(batch.records) <= AT_ONCE_BYTES):
            yield _Chunk(first, redelivered, deliveries, batch)
            continue
        for place, piece in _cut(batch):
            yield _Chunk(first + place, redelivered, deliveries, piece)


def _cut(batch: RecordBatch) -> Iterator[tuple[int, RecordBatch]]:
    """A large batch in pieces, which are found one after the other: a batch may have 65,536 messages."""
    records = bytes(batch.records)
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(records)
    place = begin = 0
    while place < batch.count:
        stop = place
        while stop < batch.count and stop - place < AT_ONCE and unpacker.tell() - begin < AT_ONCE_BYTES:
            unpacker.skip()
            stop += 1
        end = unpacker.tell()
        yield (
            place,
            RecordBatch(
                batch.exchange,
                batch.routing_key,
                batch.flags,
                batch.timestamp_ms,
                batch.origin,
                batch.serial + place,
                stop - place,
                records[begin:end],
                batch.priority,
                batch.ttl_ms,
            ),
        )
        place, begin = stop, end
