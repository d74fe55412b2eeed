"""Looks at a shard's small rows: delayed messages, producers, reservations, cursors of groups, notes."""

from collections.abc import Iterator
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from shardmq.message.record_batch import RecordBatch
from shardmq.ranges import RangeSet
from shardmq.replication.store.touched_keys import is_replica_row
from shardmq.runtime.clock import ClockNote
from shardmq.shards.check.queues import Look, lost, strange_queue
from shardmq.shards.check.segments import is_whole
from shardmq.shards.storage.entries import CursorRow, Reservation
from shardmq.shards.storage.schema import (
    APPLIED,
    BODIES_NOTED,
    CLOCK,
    CURSORS,
    DAMAGED,
    ENDED,
    IDENTITY,
    NUMBER,
    PLACE,
    PRODUCERS,
    REPLICA,
    RESERVATIONS,
    RETURNED,
    STATE,
    TIMER,
    TIMERS,
    number_of,
)
from shardmq.storage.engine import Edit
from shardmq.storage.repair.findings import Finding, Repair

NOTE_LOST_LEAP: Final = 1 << 44
"""How far behind the last shared body numbers go on where the note of them is lost: none is given twice."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_batch: Final = msgspec.msgpack.Decoder(RecordBatch).decode
_decode_ranges: Final = msgspec.msgpack.Decoder(list[tuple[int, int]]).decode
_decode_reservation: Final = msgspec.msgpack.Decoder(Reservation).decode
_decode_cursor: Final = msgspec.msgpack.Decoder(CursorRow).decode
_decode_damage: Final = msgspec.msgpack.Decoder(tuple[str, bytes, str]).decode
_decode_clock: Final = msgspec.msgpack.Decoder(ClockNote).decode


def look_at_timers(look: Look) -> Iterator[Finding]:
    """Look at delayed messages, and those that were returned with a delay."""
    for key, content in look.store.rows(TIMERS):
        look.seen()
        if len(key) != TIMER.size:
            yield look.found(
                TIMERS,
                key,
                f"the key has {len(key)} bytes",
                repair=Repair("deletes the row", edits=((TIMERS, key, None),)),
            )
            continue
        queue, _, _, count = TIMER.unpack(key)
        if not look.is_known(queue):
            yield strange_queue(look, TIMERS, key, queue)
        messages = count & ~RETURNED
        if count & RETURNED:
            if content != b"":
                yield look.found(
                    TIMERS,
                    key,
                    "the delay of returned messages is not what was written",
                    queue=queue,
                    repair=Repair("makes the row anew", edits=((TIMERS, key, b""),)),
                )
        elif not _is_batch(content, messages):
            yield look.found(
                TIMERS,
                key,
                "delayed messages are not what was written",
                queue=queue,
                repair=Repair(lost(messages, []), edits=((TIMERS, key, None),), messages=messages),
            )


def look_at_producers(look: Look) -> Iterator[Finding]:
    """Look at the sequence numbers that queues have of producers."""
    for key, content in look.store.rows(PRODUCERS):
        look.seen()
        if len(key) == PLACE.size and content is not None:
            try:
                _decode_ranges(content)
                continue
            except msgspec.DecodeError:
                pass
        queue = number_of(key[: NUMBER.size])
        yield look.found(
            PRODUCERS,
            key,
            "what the queue has of a producer is not what was written",
            queue=queue,
            repair=Repair(
                "forgets it: what that producer sends again is stored again", edits=((PRODUCERS, key, None),)
            ),
        )


def look_at_reservations(look: Look) -> Iterator[Finding]:
    """Messages that are held under a name."""
    for key, content in look.store.rows(RESERVATIONS):
        look.seen()
        queue = number_of(key[: NUMBER.size])
        try:
            found = _decode_reservation(content) if content is not None else None
        except msgspec.DecodeError:
            found = None
        if found is None or key != PLACE.pack(found.queue, xxh3_64_intdigest(found.name.encode())):
            edits = ((RESERVATIONS, key, None),)
            yield look.found(
                RESERVATIONS,
                key,
                "a reservation is not what was written",
                queue=queue,
                repair=Repair("releases it: its messages are ready again", edits=edits),
            )


def look_at_cursors(look: Look) -> Iterator[Finding]:
    """Look at where groups are in partitions."""
    for key, content in look.store.rows(CURSORS):
        look.seen()
        if len(key) > NUMBER.size and content is not None:
            try:
                _decode_cursor(content)
                continue
            except msgspec.DecodeError:
                pass
        group = key[NUMBER.size :].decode(errors="replace")
        yield look.found(
            CURSORS,
            key,
            f"the cursor of group '{group}' is not what was written",
            queue=number_of(key[: NUMBER.size]),
            repair=Repair(
                "forgets where the group was: in this partition it begins where its next member says (the end, unless "
                "told), and skips or reads again what lies between; `shardmq group commit` before that sets it",
                edits=((CURSORS, key, None),),
            ),
        )


def look_at_notes(look: Look) -> Iterator[Finding]:
    """Look at the notes of the shard as a whole, and of queues that are out of service."""
    for key, content in look.store.rows(STATE):
        look.seen()
        if key.startswith(DAMAGED):
            queue = number_of(key[len(DAMAGED) :])
            yield look.found(
                STATE,
                key,
                _note(content),
                queue=queue,
                repair=Repair("puts the queue into service", edits=((STATE, key, None),)),
            )
        elif key == CLOCK and not _is_clock(content):
            yield look.found(
                STATE,
                key,
                "the time is not what was written",
                repair=Repair("takes the machine's time", edits=((STATE, key, None),)),
            )
        elif key == ENDED and not _is_ranges(content):
            edits = _ended(look)
            yield look.found(
                STATE,
                key,
                "the numbers of decided transactions are not what was written",
                repair=Repair("takes them from the coordinator's store" if edits else "", edits=edits),
            )
        elif key == BODIES_NOTED and (content is None or len(content) != NUMBER.size):
            yield _without_last_body(look, "the last number of a shared body is not what was written")
        elif key not in (CLOCK, ENDED, APPLIED) and content is None:
            yield look.found(STATE, key, "the row is not what was written")


def look_at_lost_notes(look: Look) -> Iterator[Finding]:
    """Look for notes of the shard as a whole that are not there any more: their page was damaged, and left out."""
    store = look.store
    is_lost = store.log.is_unnoted
    if is_lost:
        yield look.found(
            STATE,
            APPLIED,
            "the note of which commits of the redo log are in it is lost",
            repair=Repair("notes that all are, as they are", edits=((STATE, APPLIED, NUMBER.pack(store.log.last)),)),
        )
    identity = look.registry.identity if look.registry is not None else None
    if identity is not None and store.row(STATE, IDENTITY) is None:
        is_lost = True
        yield look.found(
            STATE,
            IDENTITY,
            "the note of whose the store is, is lost",
            repair=Repair("takes it from the coordinator's store", edits=((STATE, IDENTITY, _encode(identity)),)),
        )
    if is_lost and look.bodies and store.row(STATE, BODIES_NOTED) is None:
        yield _without_last_body(look, "the last number of a shared body is lost")
    edits = _ended(look)
    if is_lost and edits and store.row(STATE, ENDED) is None:
        what = "the numbers of decided transactions are lost"
        yield look.found(STATE, ENDED, what, repair=Repair("takes them from the coordinator's store", edits=edits))


def _without_last_body(look: Look, what: str) -> Finding:
    noted = NUMBER.pack(max(look.bodies, default=0) + NOTE_LOST_LEAP)
    repair = Repair("goes on far behind those that are there", edits=((STATE, BODIES_NOTED, noted),))
    return look.found(STATE, BODIES_NOTED, what, repair=repair)


def look_at_replica(look: Look) -> Iterator[Finding]:
    """Look at what a replica notes of itself."""
    for key, content in look.store.rows(REPLICA):
        look.seen()
        if content is None or not is_replica_row(key, content):
            yield look.found(
                REPLICA,
                key,
                "what the replica notes of itself is not what was written",
                repair=Repair(
                    "makes the store one of no replica: the host gets a new one", edits=((REPLICA, key, None),)
                ),
            )


def _note(content: bytes | None) -> str:
    try:
        database, key, what = _decode_damage(content or b"")
    except msgspec.DecodeError:
        return "the queue is out of service; why, cannot be read"
    return f"the queue is out of service since row {key.hex()} of {database} was read: {what}"


def _ended(look: Look) -> tuple[Edit, ...]:
    """Return the edit that notes all numbers that were given and are not undecided."""
    registry = look.registry
    if registry is None or registry.next_transaction is None:
        return ()
    ended = RangeSet([(1, registry.next_transaction)])
    for number in registry.undecided:
        ended.remove(number, number + 1)
    return ((STATE, ENDED, _encode(list(ended))),)


def _is_batch(content: bytes | None, messages: int) -> bool:
    try:
        batch = _decode_batch(content or b"")
    except msgspec.DecodeError:
        return False
    return batch.count == messages and is_whole(batch)


def _is_ranges(content: bytes | None) -> bool:
    try:
        return content is not None and _decode_ranges(content) is not None
    except msgspec.DecodeError:
        return False


def _is_clock(content: bytes | None) -> bool:
    try:
        return content is not None and _decode_clock(content) is not None
    except msgspec.DecodeError:
        return False
