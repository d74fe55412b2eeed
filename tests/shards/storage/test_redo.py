"""The redo log: what was appended is there after any end of the process; what was not whole is not."""

import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.errors import StoreRefused
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.lmdb_engine import CHECKPOINT_BUSY_SECONDS, CHECKPOINT_ROWS, CHECKPOINT_SECONDS
from shardmq.storage.redo.log import REDO_BYTES, RedoLog
from shardmq.storage.redo.recovery import ENTRY_BYTES_MAX
from shardmq.topology.entities import Queue as Declared

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
DECLARED = Declared("/", "q", 1, 0)


def segment_of(first: int, bodies: list[bytes]) -> Segment:
    segment = Segment(1, first, durable=True, born=0.0)
    batch = RecordBatch("e", "k", 1, 1, 1, first, len(bodies), pack_many(bodies))
    segment.batches = [(first, batch)]
    segment.end = first + len(bodies)
    segment.count = segment.live = len(bodies)
    segment.bytes = len(batch.records)
    segment.stored = True
    return segment


def crash(folder: Path, to: Path) -> Path:
    """What another process would find if this one ended now: the files as they are."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("lock*"))
    return to


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where that can be had: these tests make and copy many logs."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        yield Path(name)


@pytest.fixture
def log(tmp_path: Path) -> RedoLog:
    return RedoLog(tmp_path / "redo", None)


@given(payloads=st.lists(st.binary(max_size=300), max_size=12), applied=st.integers(0, 3), cut=st.integers(1, 300))
def test_entries_come_back_in_order_but_for_a_torn_one(
    folder: Path, payloads: list[bytes], applied: int, cut: int
) -> None:
    file = folder / "redo"
    file.unlink(missing_ok=True)
    log = RedoLog(file, None)
    start = log._position
    for payload in payloads:
        log.append(payload)
    end = log._position
    log.close()
    again = RedoLog(file, 0)
    assert again.pending == payloads
    assert again.last == len(payloads)
    again.close()
    torn = max(start, end - cut)
    with file.open("r+b") as stream:  # a write that did not reach the disk whole
        stream.seek(torn)
        stream.write(bytes(end - torn))
    after = RedoLog(file, 0)
    assert after.pending == payloads[: len(after.pending)]
    assert after._position <= end
    after.close()
    if applied:
        later = RedoLog(file, len(payloads) + applied)
        assert later.pending == []
        later.close()


def test_what_is_left_of_older_entries_is_told_by_its_numbers(log: RedoLog) -> None:
    for number in range(10):
        log.append(b"old %d" % number)
    log.rewind()
    log.append(b"new 1")
    log.append(b"new 2")
    log.close()
    again = RedoLog(log.file, 10)
    assert again.pending == [b"new 1", b"new 2"]
    assert again.last == 12
    again.close()


def test_a_full_log_says_so(log: RedoLog) -> None:
    payload = bytes(ENTRY_BYTES_MAX)
    assert not log.has_room(len(payload) + 1)
    while log.has_room(len(payload)):
        log.append(payload)
    assert log._position > REDO_BYTES // 2
    assert log._position <= REDO_BYTES
    assert log.file.stat().st_size == REDO_BYTES
    log.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: b"something else" + content[14:], "no redo log"),
        (lambda content: content[:5], "no redo log"),
        (lambda content: content[:13] + struct.pack(">I", 9) + content[17:], "version 9"),
        (lambda content: content[: REDO_BYTES // 2], "cut short"),
    ],
)
def test_a_log_that_is_not_ours_is_refused_and_left_alone(log: RedoLog, change: object, reason: str) -> None:
    log.close()
    assert callable(change)
    spoilt = change(log.file.read_bytes())
    log.file.write_bytes(spoilt)
    with pytest.raises(StoreRefused, match=reason) as refused:
        RedoLog(log.file, 0)
    assert str(log.file) in refused.value.text
    assert log.file.read_bytes() == spoilt


def test_a_store_whose_log_is_missing_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path / "shard").close()
    (tmp_path / "shard" / "redo").unlink()
    with pytest.raises(StoreRefused, match="redo is missing"):
        Store.open(tmp_path / "shard")
    assert not (tmp_path / "shard" / "redo").exists()


def test_small_writes_survive_a_crash_before_they_are_in_lmdb(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "shard")
    store.load()
    store.write(WriteBatch(queues=[DECLARED]))
    first, second, third = (segment_of(number * 10, [b"%d" % number] * 10) for number in range(3))
    store.write(WriteBatch(put=[first, second], marks={(1, 0): 5}))
    store.write(WriteBatch(delete=[first], put=[third]))
    after = Store.open(crash(tmp_path / "shard", tmp_path / "after"))
    contents = after.load()
    assert contents.queues == [DECLARED]
    assert contents.marks == {(1, 0): 5}
    assert [segment.first for segment in contents.segments] == [10, 20]
    assert [after.read(segment) for segment in contents.segments] == [second.batches, third.batches]
    after.close()
    store.close()


def test_small_writes_are_read_back_before_and_after_they_are_in_lmdb(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "shard")
    store.load()
    segment = segment_of(0, [b"x"] * 3)
    store.write(WriteBatch(queues=[DECLARED], put=[segment]))
    assert store.read(segment) == segment.batches
    store.rest(time.monotonic() + CHECKPOINT_SECONDS, False)
    assert not store.is_pending
    assert store.read(segment) == segment.batches
    store.close()


def test_writes_stay_in_the_log_for_longer_while_messages_come_unless_they_are_many(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "shard")
    store.load()
    store.write(WriteBatch(queues=[DECLARED], put=[segment_of(0, [b"x"])]))
    store.rest(time.monotonic() + CHECKPOINT_SECONDS, True)
    assert store.is_pending
    store.rest(time.monotonic() + CHECKPOINT_BUSY_SECONDS, True)
    assert not store.is_pending
    for start in range(10, 10 + CHECKPOINT_ROWS, 100):
        store.write(WriteBatch(put=[segment_of(number, [b"x"]) for number in range(start, start + 100)]))
    store.rest(time.monotonic() + CHECKPOINT_SECONDS, True)
    assert not store.is_pending
    store.close()


def test_large_and_small_writes_keep_their_order(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "shard")
    store.load()
    small, large = segment_of(0, [b"s"]), segment_of(10, [bytes(1000)] * 200)
    store.write(WriteBatch(queues=[DECLARED], put=[small]))
    store.write(WriteBatch(put=[large]))
    store.write(WriteBatch(delete=[large]))
    store.write(WriteBatch(put=[segment_of(20, [b"t"])]))
    after = Store.open(crash(tmp_path / "shard", tmp_path / "after"))
    assert [segment.first for segment in after.load().segments] == [0, 20]
    after.close()
    store.close()


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(["put", "delete", "checkpoint", "crash"]), st.booleans()),
        max_size=25,
    )
)
def test_any_mix_of_writes_checkpoints_and_crashes_keeps_exactly_what_was_written(
    folder: Path, steps: list[tuple[int, str, bool]]
) -> None:
    home = Path(tempfile.mkdtemp(dir=folder))
    store = Store.open(home / "0")
    store.load()
    store.write(WriteBatch(queues=[DECLARED]))
    model: dict[int, Segment] = {}
    for place, (number, verb, large) in enumerate(steps):
        if verb == "put" and number not in model:
            model[number] = segment_of(number * 10, [bytes(20_000) if large else b"s"] * 5)
            store.write(WriteBatch(put=[model[number]]))
        elif verb == "delete" and number in model:
            store.write(WriteBatch(delete=[model.pop(number)]))
        elif verb == "checkpoint":
            store.rest(time.monotonic() + CHECKPOINT_SECONDS, False)
        elif verb == "crash":
            after = crash(store.file.parent, home / str(place + 1))
            store.close()
            shutil.rmtree(store.file.parent)
            store = Store.open(after)
            store.load()
    contents = store.load()
    assert {segment.first: store.read(segment) for segment in contents.segments} == {
        segment.first: segment.batches for segment in model.values()
    }
    store.close()
    shutil.rmtree(home)
