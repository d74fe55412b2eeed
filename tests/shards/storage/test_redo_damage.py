"""A redo log that was damaged: mended or refused, never taken for one that ends there."""

import logging
import random
import struct
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from shardmq.errors import StoreDamaged
from shardmq.storage.redo.log import REDO_BYTES, RedoLog
from shardmq.storage.redo.recovery import ENTRY

START = 4096
PAYLOADS = [b"commit %d " % number * (number + 1) for number in range(25)]
PLACES = [START + sum(ENTRY.size + len(payload) for payload in PAYLOADS[:number]) for number in range(26)]


@pytest.fixture
def log(tmp_path: Path) -> RedoLog:
    """A closed log with 25 commits, none of which is in the store."""
    log = RedoLog(tmp_path / "redo", None)
    for payload in PAYLOADS:
        log.append(payload)
    log.close()
    return log


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(bit // 8)
        byte = stream.read(1)[0]
        stream.seek(bit // 8)
        stream.write(bytes([byte ^ 1 << bit % 8]))


def overwrite(file: Path, position: int, content: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(position)
        stream.write(content)


def pending(file: Path, applied: int = 0) -> list[bytes]:
    log = RedoLog(file, applied)
    log.close()
    return log.pending


@pytest.mark.parametrize("number", [0, 3, 24])
def test_one_wrong_bit_anywhere_in_a_commit_is_mended_and_told(
    log: RedoLog, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    bits = range(PLACES[number] * 8, PLACES[number + 1] * 8)
    for bit in [*bits[: ENTRY.size * 8], *random.Random(number).sample(bits[ENTRY.size * 8 :], 12)]:
        flip(log.file, bit)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert pending(log.file) == PAYLOADS
        assert f"mended one wrong bit in commit {number + 1}, at byte {PLACES[number]}" in caplog.text
        flip(log.file, bit)


def test_every_bit_of_the_header_that_means_something_is_guarded(log: RedoLog) -> None:
    for bit in range(41 * 8):
        flip(log.file, bit)
        with pytest.raises(Exception, match=r"redo (is damaged|is no redo log|has format version|is cut short)"):
            RedoLog(log.file, 0)
        flip(log.file, bit)
    assert pending(log.file) == PAYLOADS


@pytest.mark.parametrize(("number", "behind"), [(0, "24 commits lie"), (3, "21 commits lie"), (23, "1 commit lies")])
def test_a_commit_that_is_lost_before_others_is_refused(log: RedoLog, number: int, behind: str) -> None:
    overwrite(log.file, PLACES[number] + 4, bytes(ENTRY.size))
    with pytest.raises(
        StoreDamaged, match=f"commit {number + 1}, at byte {PLACES[number]}, .*{behind} behind"
    ) as refused:
        RedoLog(log.file, 0)
    assert str(log.file) in refused.value.text


def test_the_last_commit_may_be_torn(log: RedoLog) -> None:
    overwrite(log.file, PLACES[25] - 40, bytes(40))
    assert pending(log.file) == PAYLOADS[:24]


def test_commits_are_found_behind_damage_wherever_the_log_was_written_over(log: RedoLog) -> None:
    again = RedoLog(log.file, 25)
    again.rewind()
    for number in range(5):
        again.append(b"later %d" % number)
    second = START + ENTRY.size + len(b"later 0")
    again.close()
    assert pending(log.file, 25) == [b"later %d" % number for number in range(5)]
    overwrite(log.file, second, b"\xff" * 12)
    with pytest.raises(StoreDamaged, match=f"commit 27, at byte {second}, .*3 commits lie behind, from commit 28"):
        RedoLog(log.file, 25)


def test_a_log_of_a_later_time_than_its_store_is_refused(log: RedoLog) -> None:
    again = RedoLog(log.file, 25)
    again.rewind()
    again.append(b"later")
    again.close()
    with pytest.raises(
        StoreDamaged, match="commits 11 to 25 are not in it, nor in the store it belongs to, and 1 commit"
    ):
        RedoLog(log.file, 10)
    assert pending(log.file, 26) == []
    assert pending(log.file, 1_000_000) == []


def test_bytes_of_a_message_that_look_like_a_later_commit_are_none(tmp_path: Path) -> None:
    log = RedoLog(tmp_path / "redo", None)
    forged = b"".join(
        ENTRY.pack(1, number, xxh3_64_intdigest(struct.pack(">Q", number) + b"x")) + b"x" for number in range(2, 40)
    )
    log.append(b"a body: " + forged)
    log.close()
    overwrite(log.file, START + ENTRY.size, b"torn")
    assert pending(log.file) == []


def test_a_full_log_is_searched_quickly_even_when_it_is_all_bait(tmp_path: Path) -> None:
    log = RedoLog(tmp_path / "redo", None)
    while log.has_room(60_000):
        log.append(ENTRY.pack(60_000, log.last + 200, 1) * 3000)
    log.close()
    overwrite(log.file, START, b"\xff" * 16 + bytes(30_000))
    overwrite(log.file, REDO_BYTES // 2, b"\xff" * (REDO_BYTES // 4))
    with pytest.raises(StoreDamaged, match="commit 1, at byte 4096"):
        RedoLog(log.file, 0)


def test_a_log_of_the_first_version_is_read_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "redo"
    entries = b"".join(
        ENTRY.pack(len(payload), number, xxh3_64_intdigest(struct.pack(">Q", number) + payload)) + payload
        for number, payload in enumerate(PAYLOADS, 1)
    )
    header = b"shardmq-redo\0" + struct.pack(">IQ", 1, REDO_BYTES)
    file.write_bytes((header.ljust(START, b"\0") + entries).ljust(REDO_BYTES, b"\0"))
    log = RedoLog(file, 0)
    assert log.pending == PAYLOADS
    log.renew()
    log.append(b"new")
    log.close()
    assert pending(file, 25) == [b"new"]
    with file.open("rb") as stream:
        assert struct.unpack_from(">I", stream.read(17), 13) == (2,)
