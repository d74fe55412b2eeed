"""Looks at what transactions have on a shard: staged messages, seals, decisions that are being carried out."""

from collections.abc import Iterator
from typing import Final

import msgspec

from shardmq.message.record_batch import RecordBatch
from shardmq.shards.check.queues import Look, lost
from shardmq.shards.check.segments import is_whole, pairs
from shardmq.shards.check.shared import has_records
from shardmq.shards.segments.shared_batch import reference_of
from shardmq.shards.storage.schema import (
    CONCLUDING,
    NUMBER,
    PLACE,
    SEALED,
    STAGE,
    STAGED,
    STAGES,
    number_of,
    staged_place,
)
from shardmq.storage.repair.findings import Finding, Repair

_encode: Final = msgspec.msgpack.Encoder().encode
_decode_staged: Final = msgspec.msgpack.Decoder(tuple[tuple[int, ...], int, RecordBatch]).decode
_decode_sealed: Final = msgspec.msgpack.Decoder(tuple[int, int]).decode
_decode_attempts: Final = msgspec.msgpack.Decoder(list[int]).decode


def look_at_staged(look: Look) -> Iterator[Finding]:
    """Everything of transactions."""
    sums: dict[tuple[int, int], tuple[int, int]] = {}
    for key, entry, content, has_entry, has_body in pairs(look.store, STAGES, STAGED):
        look.seen()
        yield from _staged(key, entry, content, has_entry, has_body, look, sums)
    for key, content in look.store.rows(SEALED):
        look.seen()
        if len(key) == PLACE.size and _reads(_decode_sealed, content):
            continue
        transaction, attempt = PLACE.unpack(key) if len(key) == PLACE.size else (0, 0)
        sealed = _encode(sums.get((transaction, attempt), (0, 0)))
        edit = sealed if len(key) == PLACE.size else None
        yield look.found(
            SEALED,
            key,
            f"the seal of attempt {attempt} of transaction {transaction} is not what was written",
            repair=Repair("seals it as it is", edits=((SEALED, key, edit),)),
        )
    for key, content in look.store.rows(CONCLUDING):
        look.seen()
        if len(key) != NUMBER.size or not _reads(_decode_attempts, content):
            yield _concluding(look, key)


def _staged(
    key: bytes,
    entry: bytes | None,
    content: bytes | None,
    has_entry: bool,
    has_body: bool,
    look: Look,
    sums: dict[tuple[int, int], tuple[int, int]],
) -> Iterator[Finding]:
    both = ((STAGES, key, None), (STAGED, key, None))
    if len(key) != STAGE.size:
        yield look.found(
            STAGED if has_body else STAGES,
            key,
            f"the key has {len(key)} bytes",
            repair=Repair("deletes the row", edits=both),
        )
        return
    place = staged_place(key)
    of = f"of attempt {place.attempt} of transaction {place.transaction}"
    batch = _batch_of(content, place.messages)
    if batch is None:
        what = f"messages {of} are not " + ("what was written" if has_body else "there")
        mend = f"{lost(place.messages, [])} {of}"
        yield look.found(STAGED, key, what, repair=Repair(mend, edits=both, messages=place.messages))
        return
    if not has_records(look, batch):
        what = f"a shared body that messages {of} refer to is damaged or not there"
        mend = f"{lost(place.messages, [])} {of}"
        yield look.found(STAGED, key, what, repair=Repair(mend, edits=both, messages=place.messages))
        return
    noted, reference = b"", reference_of(batch)
    if reference is not None:
        look.referred.add(reference.body, reference.body + 1)
        noted = NUMBER.pack(reference.body)
    messages, size = sums.get((place.transaction, place.attempt), (0, 0))
    sums[place.transaction, place.attempt] = messages + place.messages, size + place.bytes
    if not has_entry or entry != noted:
        yield look.found(
            STAGES,
            key,
            f"the entry of messages {of} is not what was written",
            repair=Repair("makes a new entry", edits=((STAGES, key, noted),)),
        )


def _concluding(look: Look, key: bytes) -> Finding:
    if len(key) != NUMBER.size:
        return look.found(
            CONCLUDING,
            key,
            f"the key has {len(key)} bytes",
            repair=Repair("deletes the row", edits=((CONCLUDING, key, None),)),
        )
    transaction = number_of(key)
    attempts = look.registry.decisions.get(transaction) if look.registry is not None else None
    what = f"the decision of transaction {transaction} is not what was written"
    if attempts is None:
        return look.found(CONCLUDING, key, f"{what}, and the coordinator's store does not tell it")
    return look.found(
        CONCLUDING,
        key,
        what,
        repair=Repair("takes it from the coordinator's store", edits=((CONCLUDING, key, _encode(attempts)),)),
    )


def _batch_of(content: bytes | None, messages: int) -> RecordBatch | None:
    """A staged batch as it is stored; None where it cannot be read."""
    if content is None:
        return None
    try:
        _, _, batch = _decode_staged(content)
    except msgspec.DecodeError:
        return None
    return batch if batch.count == messages and is_whole(batch) else None


def _reads(decode: object, content: bytes | None) -> bool:
    assert callable(decode)
    try:
        return content is not None and decode(content) is not None
    except msgspec.DecodeError:
        return False
