"""Looks through a shard's closed store: every row is read, and what refers to what. Nothing is changed.

What is found is told with what a repair would do about it (`Finding.edits`), so that a look and a repair cannot differ.
Only queues, subqueues and attempts are held in memory; messages are read one segment at a time.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shardmq.ranges import RangeSet
from shardmq.shards.check.closed_store import ClosedStore
from shardmq.shards.queues.delivery import SUBQUEUE_BITS
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.identity import StoreIdentity
from shardmq.shards.storage.schema import DATABASES, DROPPED, MARKS, NUMBER, PLACE, QUEUES, number_of
from shardmq.storage.engine import Edit
from shardmq.storage.repair.findings import NO_REPAIR, Finding, Ranges, Repair, numbers_text
from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import Queue as Declared

MARK_LOST_LEAP: Final = 1 << 44
"""How far beyond what is stored a queue counts on whose mark is lost: numbers that it gave before and that are done
with are known elsewhere, as those of dead letters, and must not come again."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_queue: Final = msgspec.msgpack.Decoder(Declared).decode


@dataclass(frozen=True, slots=True)
class Registry:
    """What the coordinator knows of a shard; a repair takes from it what the shard has lost.

    Attributes:
        queues: its durable queues, by id.
        deleted: ids of queues it is still to drop.
        decisions: attempts that count, of transactions it may still have to carry out.
        undecided: numbers of transactions.
        next_transaction: number of the next new one; None where that is not known.
        identity: of the store that serves as the shard; None where that is not known.
    """

    queues: Mapping[int, Declared] = field(default_factory=dict)
    deleted: frozenset[int] = frozenset()
    decisions: Mapping[int, list[int]] = field(default_factory=dict)
    undecided: frozenset[int] = frozenset()
    next_transaction: int | None = None
    identity: StoreIdentity | None = None


class Look:
    """One look through a store, and what is known so far.

    Args:
        name: of the shard.
        store: its store.
        registry: what the coordinator knows of it; None where that cannot be read.
        seen: called for every row, so that somebody can be told how far this is.

    Attributes:
        queues: ids of queues that have a row, with what it says where that can be read.
        dropped: ids of queues that are being deleted.
        ends: behind the last message of each queue's subqueue that was found.
        bodies: how many bytes each shared body has that can be read, by number.
        referred: numbers of shared bodies that messages refer to which a repair keeps.
    """

    def __init__(self, name: str, store: ClosedStore, registry: Registry | None, seen: Callable[[], None]) -> None:
        self.name = name
        self.store = store
        self.registry = registry
        self.seen = seen
        self.queues: dict[int, Declared | None] = {}
        self.dropped: set[int] = set()
        self.ends: dict[tuple[int, int], int] = {}
        self.bodies: dict[int, int] = {}
        self.referred = RangeSet()

    def declared(self, queue: int) -> Declared | None:
        """A queue's declaration, of its row or as the coordinator knows it; None where that cannot be told."""
        return self.queues.get(queue) or (self.registry.queues.get(queue) if self.registry is not None else None)

    def title(self, queue: int) -> str:
        """A queue's name, where that can be told."""
        declared = self.declared(queue)
        return f"queue '{declared.name}' in vhost '{declared.vhost}'" if declared is not None else f"queue {queue}"

    def is_known(self, queue: int) -> bool:
        """Whether something may be stored of a queue."""
        return queue in self.queues or queue in self.dropped

    def kept_end(self, entry: Segment) -> tuple[Edit, ...]:
        """The edit by which a stream goes on behind a segment that is lost: its groups have read those offsets."""
        declared = self.declared(entry.queue)
        if declared is None or not is_stream(declared.arguments):
            return ()
        key = NUMBER.pack(entry.queue)
        _, mark = self.store.row(MARKS, key) or (key, None)  # of an earlier repair
        end = max(entry.end, number_of(mark)) if mark is not None else entry.end
        return ((MARKS, key, NUMBER.pack(end)),)

    def found(
        self,
        number: int,
        key: bytes,
        what: str,
        queue: int | None = None,
        repair: Repair = NO_REPAIR,
        is_damage: bool = True,
    ) -> Finding:
        """Make a finding about a row.

        Args:
            number: of the database.
            key: of the row.
            what: what is wrong.
            queue: id of the queue the row belongs to, if it belongs to one.
            repair: what can be done about it.
            is_damage: whether it is damage; else it is only worth knowing.
        """
        return Finding(
            store=self.name,
            file=str(self.store.file),
            database=DATABASES[number].decode(),
            key=key.hex(),
            queue=queue,
            title=self.title(queue) if queue is not None else "",
            what=what,
            mend=repair.text,
            messages=repair.messages,
            numbers=repair.numbers,
            edits=repair.edits,
            is_damage=is_damage,
        )


def lost(messages: int, numbers: Ranges) -> str:
    """Return the text about messages that a repair cannot keep."""
    which = f" (numbers {numbers_text(numbers)})" if numbers else ""
    return f"loses {messages:,} message{'s' * (messages != 1)}{which}"


def look_at_queues(look: Look) -> Iterator[Finding]:
    """Look at declarations, and at notes of queues that are being deleted."""
    for key, _ in look.store.rows(DROPPED):
        look.seen()
        look.dropped.add(number_of(key))
    for key, content in look.store.rows(QUEUES):
        look.seen()
        declared = _declared(key, content)
        if len(key) == NUMBER.size:
            look.queues[number_of(key)] = declared
        if declared is None:
            yield _without_declaration(look, QUEUES, key, "the declaration is not what was written")
    if look.registry is None:
        return
    for number, known in look.registry.queues.items():
        if not look.is_known(number):
            look.queues[number] = known
            yield look.found(
                QUEUES,
                NUMBER.pack(number),
                "the coordinator has this queue, and the shard has not",
                queue=number,
                repair=Repair("declares it again", edits=((QUEUES, NUMBER.pack(number), _encode(known)),)),
            )
    for number in look.queues:
        if number not in look.registry.queues and number not in look.registry.deleted:
            yield look.found(
                QUEUES, NUMBER.pack(number), "the coordinator does not know this queue", queue=number, is_damage=False
            )


def strange_queue(look: Look, number: int, key: bytes, queue: int) -> Finding:
    """Return the finding about a queue that is not there, and of which something is stored; once for each queue."""
    look.queues[queue] = None
    return _without_declaration(look, number, key, "something is stored of this queue, and no declaration", queue)


def _without_declaration(look: Look, number: int, key: bytes, what: str, queue: int | None = None) -> Finding:
    if queue is None and len(key) == NUMBER.size:
        queue = number_of(key)
    if queue is None:
        return look.found(number, key, what, repair=Repair("deletes the row", edits=((number, key, None),)))
    known = look.registry.queues.get(queue) if look.registry is not None else None
    if known is None:
        return look.found(number, key, f"{what}, and the coordinator's store does not tell it", queue=queue)
    return look.found(
        number,
        key,
        what,
        queue=queue,
        repair=Repair(
            "takes the declaration from the coordinator's store", edits=((QUEUES, NUMBER.pack(queue), _encode(known)),)
        ),
    )


def look_at_marks(look: Look) -> Iterator[Finding]:
    """Look at the marks of subqueues. A mark that is too high marks messages redelivered that were not."""
    for key, content in look.store.rows(MARKS):
        look.seen()
        if content is not None and len(content) == NUMBER.size and len(key) in (NUMBER.size, PLACE.size):
            continue
        queue = number_of(key[: NUMBER.size])
        subqueue = number_of(key[NUMBER.size :])
        mark = max(look.ends.get((queue, subqueue), 0), subqueue << SUBQUEUE_BITS) + MARK_LOST_LEAP
        yield look.found(
            MARKS,
            key,
            "the mark of what was handed out is not what was written",
            queue=queue,
            repair=Repair("marks all of its messages redelivered", edits=((MARKS, key, NUMBER.pack(mark)),)),
        )


def _declared(key: bytes, content: bytes | None) -> Declared | None:
    if content is None or len(key) != NUMBER.size:
        return None
    try:
        declared = _decode_queue(content)
    except msgspec.DecodeError:
        return None
    return declared if declared.id == number_of(key) else None
