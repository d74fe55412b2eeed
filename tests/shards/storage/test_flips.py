"""One bit of a shard's store is flipped: it is refused, or starts with all that it had."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.errors import RowDamaged
from shardmq.message.record import pack_many
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.ranges import RangeSet
from shardmq.runtime.clock import ClockNote
from shardmq.shards.segments.segment import Segment
from shardmq.shards.storage.entries import (
    DamagedStage,
    Reservation,
    Sealed,
    SequenceSet,
    Staged,
    StagedPlace,
    Timer,
)
from shardmq.shards.storage.schema import (
    DATABASES,
)
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch
from shardmq.storage.pages.page_check import check_pages
from shardmq.topology.entities import Queue as Declared
from tests.shards.stores import Cursor
from tests.storage.flips import flipped, refusals

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def run_of(first: int, bodies: list[bytes]) -> RecordBatch:
    return RecordBatch("ex", "key", PERSISTENT, 5, 9, first, len(bodies), pack_many(bodies))


def segment_of(queue: int, first: int, bodies: list[bytes]) -> Segment:
    return segment_with(queue, first, run_of(first, bodies))


def segment_with(queue: int, first: int, batch: RecordBatch) -> Segment:
    segment = Segment(queue, first, durable=True, born=0.0)
    segment.batches, segment.bytes, segment.stored = [(first, batch)], len(batch.records), True
    segment.end, segment.count, segment.live = first + batch.count, batch.count, batch.count
    return segment


def fill(folder: Path, is_sharing: bool = True) -> None:
    """Rows in every database, trees of several pages, bodies on pages of their own, and pages that were freed."""
    store = Store.open(folder)
    store.load()
    store.write(WriteBatch(queues=[Declared("/", f"queue {number}", number, 0) for number in range(1, 60)]))
    segments = [segment_of(1 + n % 50, n * 10, [b"%d" % n * (900 if n % 24 == 0 else 3)] * 4) for n in range(150)]
    for segment in segments[::3]:
        segment.gone = RangeSet([(segment.first, segment.first + 1)])
        segment.live -= 1
    timers = [
        Timer(3, 1000 + n, n, 2, False, True, run_of(0, [b"t" * (5000 if n % 15 == 0 else 30)] * 2)) for n in range(30)
    ]
    delayed = [Timer(4, 5000 + n, n, 1, True, True) for n in range(20)]
    staged = [
        Staged(StagedPlace(1 + n % 3, 7, n, 2, 60), (7, 8), 0, run_of(n, [b"s" * (4000 if n % 15 == 0 else 30)] * 2))
        for n in range(30)
    ]
    ranges = SequenceSet(77)
    ranges.add(0, 10)
    ranges.add(20, 30)
    store.engine.apply(store._edits.of(WriteBatch(put=segments, timers=timers + delayed, staged=staged)))
    note, reservation = ClockNote("boot", 5, 6), Reservation(7, "night", [(3, 9), (12, 13)], 99)
    store.engine.apply(
        store._edits.of(
            WriteBatch(
                marks={(number, 0): number * 10 for number in range(1, 50)},
                producers={(1, 77): ranges},
                dropped=[59],
                sealed={(1, 7): Sealed(10, 200)},
                concluding={4: [9, 8]},
                ended=[(1, 3), (4, 5)],
                reservations={(7, "night"): reservation},
                cursors={(9, "readers"): Cursor()},
                clock=note,
            )
        )
    )
    store.engine.apply(store._edits.of(WriteBatch(gone=segments[:100:3], delete=segments[100:140:2], fired=timers[:4])))
    if is_sharing:
        shared = [store.bodies.share(run_of(n, [b"%d" % n * 1100] * 4)) for n in range(5)]
        sharing = [segment_with(queue, n * 10, batch) for n, batch in enumerate(shared) for queue in (51, 52, 53)]
        store.write(WriteBatch(put=sharing))
        store.write(WriteBatch(delete=sharing[:7]))
        large = [store.bodies.share_staged(run_of(n, [b"%d" % n * 900] * 20)) for n in range(100, 104)]
        places = [StagedPlace(2, 7, batch.serial, 20, len(batch.records)) for batch in large]
        entries = [Staged(place, (7,), 0, batch) for place, batch in zip(places, large, strict=True)]
        store.write(WriteBatch(staged=entries))
        store.write(WriteBatch(unstaged=places[:1]))
    store.close()


def found(folder: Path) -> Any:
    """All that a start finds and can read; and that it can go on writing."""
    store = Store.open(folder)
    try:
        contents = store.load()
        for damage in contents.damaged:
            raise damage  # it would take its queue out of service
        segments = [
            [getattr(segment, name) for name in Segment.__slots__ if name not in ("gone", "counts")]
            + [list(segment.gone or ()), store.read(segment)]
            for segment in contents.segments
        ]
        timers = list(store.timers.all())
        due = [store.timers.due(queue, 0, 1 << 40, 1000, 1 << 40) for queue in (3, 4)]
        staged = [store.staging.batches(number, 7, 0, 1 << 40) for number in (1, 2, 3)]
        for each in [each for batches in staged for each in batches if isinstance(each, DamagedStage)]:
            raise each.damage  # it would hold its transaction up
        rest = (
            contents.queues,
            contents.marks,
            contents.dropped,
            contents.producers,
            contents.sealed,
            contents.concluding,
            contents.ended,
            contents.reservations,
            contents.clock,
            contents.cursors,
        )
        large = segment_of(1, 1 << 20, [bytes(900)] * 40)
        store.engine.apply(store._edits.of(WriteBatch(put=[large])))
        store.engine.apply(store._edits.of(WriteBatch(delete=[large])))
        return segments, timers, due, staged, list(store.staging.all()), rest
    finally:
        store.close()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name) / "shard-0"
        fill(folder)
        yield folder


@pytest.fixture(scope="module")
def content(folder: Path) -> bytes:
    return (folder / "data.mdb").read_bytes()


def test_a_flipped_bit_is_refused_or_changes_nothing(folder: Path, content: bytes) -> None:
    entries = check_pages(folder / "data.mdb").entries
    assert {name for name in DATABASES if not entries[name.decode()]} == {
        b"spilled",
        b"spilled_timers",
        b"spilled_shared",
        b"replica",
    }
    counts = refusals(folder / "data.mdb", content, lambda: found(folder))
    print(counts)
    assert counts["refused"] > counts["same"]


def test_a_flipped_bit_in_a_row_names_the_database_the_key_and_the_queue(folder: Path, content: bytes) -> None:
    file = folder / "data.mdb"
    for needle, database, queue in (
        (b"queue 31", "queues", 31),
        (b"night", "reservations", 7),
        (b"readers", "cursors", 9),
        (b"137137", "segments", 38),
        (b"ended", "state", None),
        (b"redo", "state", None),
    ):
        damages = []
        for place in re.finditer(needle, content):  # there may be older ones in free pages
            file.write_bytes(flipped(content, place.end() * 8 - 8))
            try:
                found(folder)
            except RowDamaged as damage:
                damages.append(damage)
        assert {(damage.database, damage.queue) for damage in damages} == {(database, queue)}
        damage = damages[0]
        assert damage.text.startswith(f"{file} is damaged in database '{database}', key {damage.key.hex()}: ")


def test_no_flipped_bit_ends_a_process_by_a_signal(folder: Path, content: bytes) -> None:
    """In a process of its own, as LMDB would end this one."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from tests.shards.storage.test_flips import found\nfrom shardmq.errors import StoreRefused\n"
        "try: found(Path(sys.argv[2]))\nexcept StoreRefused: sys.exit(78)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    for bit in (10 * 8, PAGE_TWO + 12 * 8 + 3, PAGE_TWO + 14 * 8 + 2, (4096 + 16 + 24 + 40) * 8):
        (folder / "data.mdb").write_bytes(flipped(content, bit))
        ended = subprocess.run([sys.executable, "-c", code, root, str(folder)], capture_output=True, check=False)
        assert ended.returncode in (0, 78), ended.stderr.decode()


PAGE_TWO = 2 * 4096 * 8


def test_a_store_is_the_same_after_a_copy_without_free_pages(folder: Path, content: bytes, tmp_path: Path) -> None:
    (folder / "data.mdb").write_bytes(content)
    expected = found(folder)
    store = Store.open(folder)
    (tmp_path / "copy").mkdir()
    store.engine._env.copy(str(tmp_path / "copy"), compact=True)
    store.close()
    shutil.copy(folder / "redo", tmp_path / "copy" / "redo")
    assert check_pages(tmp_path / "copy" / "data.mdb").lost == 0
    assert found(tmp_path / "copy") == expected
