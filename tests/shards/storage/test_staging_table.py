"""Staged batches, reservations and what is decided, as the store keeps them."""

from pathlib import Path

import pytest

from shardmq.errors import StoreRefused
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT, RecordBatch
from shardmq.shards.storage.entries import (
    DamagedStage,
    Reservation,
    Sealed,
    Staged,
    StagedPlace,
)
from shardmq.shards.storage.store import Store
from shardmq.shards.storage.write_batch import WriteBatch


def staged(transaction: int, attempt: int, sequence: int, body: bytes = b"x", messages: int = 1) -> Staged:
    records = pack(None, body) * messages
    batch = RecordBatch("ex", "key", PERSISTENT, 1, 2, 3, messages, records)
    return Staged(StagedPlace(transaction, attempt, sequence, messages, len(records)), (7, 8), 0, batch)


def all_of(store: Store, transaction: int, attempt: int) -> list[Staged]:
    found = store.staging.batches(transaction, attempt, 0, 1 << 30)
    return [each for each in found if isinstance(each, Staged)]


@pytest.fixture(params=[10, 100_000], ids=["through the redo log", "into LMDB"])
def body(request: pytest.FixtureRequest) -> bytes:
    size: int = request.param
    return b"b" * size


def test_staged_batches_are_found_in_order_of_their_attempt(tmp_path: Path, body: bytes) -> None:
    store = Store.open(tmp_path)
    batches = [staged(1, 5, sequence, body) for sequence in (3, 0, 300)]
    others = [staged(1, 6, 0, body), staged(2, 5, 1, body)]
    store.write(WriteBatch(staged=[*batches, *others]))
    assert [each.place.sequence for each in all_of(store, 1, 5)] == [0, 3, 300]
    assert all_of(store, 1, 5)[1] == batches[0]
    assert all_of(store, 2, 5) == [others[1]]
    assert [place.attempt for place in store.staging.places(1, None, 10)] == [5, 5, 5, 6]
    store.close()


def test_a_portion_of_staged_batches_ends_at_its_bytes_and_goes_on_behind(tmp_path: Path, body: bytes) -> None:
    store = Store.open(tmp_path)
    store.write(WriteBatch(staged=[staged(1, 5, sequence, body) for sequence in range(10)]))
    first = store.staging.batches(1, 5, 0, 3 * len(body))
    assert 0 < len(first) < 10
    rest = store.staging.batches(1, 5, first[-1].place.sequence + 1, 1 << 30)
    assert [each.place.sequence for each in first + rest] == list(range(10))
    places = store.staging.places(1, None, 4)
    assert [place.sequence for place in places] == [0, 1, 2, 3]
    assert [place.sequence for place in store.staging.places(1, places[-1], 4)] == [4, 5, 6, 7]
    store.close()


def test_what_is_unstaged_is_gone_at_once_and_after_a_restart(tmp_path: Path, body: bytes) -> None:
    store = Store.open(tmp_path)
    batches = [staged(1, 5, sequence, body) for sequence in range(3)]
    store.write(WriteBatch(staged=batches))
    assert len(all_of(store, 1, 5)) == 3
    store.write(WriteBatch(unstaged=[batches[1].place]))
    assert [each.place.sequence for each in all_of(store, 1, 5)] == [0, 2]
    store.close()
    again = Store.open(tmp_path)
    again.load()
    assert list(again.staging.all()) == [batches[0].place, batches[2].place]
    assert all_of(again, 1, 5) == [batches[0], batches[2]]
    again.close()


def test_a_start_finds_what_was_sealed_decided_and_reserved(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    reservation = Reservation(7, "night", [(3, 9), (12, 13)], 99)
    store.write(
        WriteBatch(
            sealed={(1, 5): Sealed(10, 200), (1, 6): Sealed(0, 0)},
            concluding={4: [9, 8]},
            ended=[(1, 3), (4, 5)],
            reservations={(7, "night"): reservation},
        )
    )
    store.write(WriteBatch(sealed={(1, 6): None}))
    store.close()
    again = Store.open(tmp_path)
    contents = again.load()
    assert contents.sealed == {(1, 5): Sealed(10, 200)}
    assert contents.concluding == {4: [9, 8]}
    assert contents.ended == [(1, 3), (4, 5)]
    assert contents.reservations == [reservation]
    again.write(WriteBatch(concluding={4: None}, reservations={(7, "night"): None}))
    again.close()
    last = Store.open(tmp_path)
    contents = last.load()
    assert (contents.concluding, contents.reservations) == ({}, [])
    last.close()


def test_a_staged_batch_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.write(WriteBatch(staged=[staged(1, 5, 0, b"needle" * 20_000)]))
    store.close()
    file = tmp_path / "data.mdb"
    content = bytearray(file.read_bytes())
    content[content.index(b"needleneedle")] ^= 1
    file.write_bytes(content)
    again = Store.open(tmp_path)
    (found,) = again.staging.batches(1, 5, 0, 1 << 30)
    assert isinstance(found, DamagedStage)
    assert "not what was written" in found.damage.text
    with pytest.raises(StoreRefused, match="not what was written"):
        again.staging.check(1, 5, 0, 1 << 30)
    again.close()


def test_staged_batches_are_found_by_the_numbers_they_have(tmp_path: Path, body: bytes) -> None:
    store = Store.open(tmp_path)
    first, second, third = (staged(1, 5, sequence, body, messages=2) for sequence in (3, 5, 300))
    store.write(WriteBatch(staged=[first, second, staged(1, 4, 400), staged(1, 6, 0), staged(2, 5, 4)]))
    store.write(WriteBatch(staged=[third]))
    for start, end, found in (
        (0, 3, []),
        (0, 4, [first]),
        (4, 5, [first]),
        (4, 6, [first, second]),
        (5, 300, [second]),
        (7, 300, []),
        (6, 301, [second, third]),
        (301, 302, [third]),
        (302, 1 << 62, []),
    ):
        assert store.staging.within(1, 5, start, end) == [each.place for each in found]
    assert store.staging.within(3, 1, 0, 1000) == []
    store.close()
