"""A file whose structure is damaged is built anew from what can still be reached."""

import errno
import json
import operator
import os
import shutil
from pathlib import Path

import pytest

from shardmq.cmd.main import run
from shardmq.errors import StoreDamaged
from shardmq.shards.check.closed_store import is_well
from shardmq.shards.storage.schema import DATABASES, FORMAT
from shardmq.shards.storage.store import Store
from shardmq.storage.files import BLOCK_BYTES
from shardmq.storage.lmdb_environment import open_environment
from shardmq.storage.pages.page import BRANCH, LEAF, PAGE
from shardmq.storage.pages.page_check import check_pages
from shardmq.storage.repair.rebuild import reachable, rebuild
from shardmq.storage.repair.salvage import SalvagedFile
from tests.shards.storage.test_flips import fill

PAGE_BYTES = 4096
NEEDLE = b"a large body"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "shard-0"
    fill(folder)
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "data" / "shard-0"))


def break_pages(file: Path, kind: int, count: int) -> int:
    """Make the headers of some pages in use nonsense; returns how many there were."""
    broken = 0
    for page in range(2, file.stat().st_size // PAGE_BYTES):
        content = bytearray(file.read_bytes())
        number, _, flags, _, _ = PAGE.unpack_from(content, page * PAGE_BYTES)
        if number != page or flags != kind or broken == count:
            continue
        whole = bytes(content)
        content[page * PAGE_BYTES] ^= 0x40
        file.write_bytes(content)
        try:
            check_pages(file)
        except StoreDamaged:
            broken += 1
        else:
            file.write_bytes(whole)  # it is free
    return broken


def counts(folder: Path) -> dict[str, int]:
    return check_pages(folder / "data.mdb").entries


def test_a_file_that_is_well_is_reached_whole(folder: Path) -> None:
    found = reachable(folder / "data.mdb", DATABASES, is_well)
    assert found is not None
    assert found.rows == found.expected
    assert found.pages == []
    before = counts(folder)
    rebuild(folder, FORMAT, DATABASES, is_well)
    assert counts(folder) == before
    store = Store.open(folder)
    assert store.load().damaged == []
    store.close()


def test_all_but_what_a_broken_leaf_holds_is_in_the_new_file(folder: Path) -> None:
    before = counts(folder)
    assert break_pages(folder / "data.mdb", LEAF, 1) == 1
    found = reachable(folder / "data.mdb", DATABASES, is_well)
    assert found is not None
    assert len(found.pages) == 1
    rebuild(folder, FORMAT, DATABASES, is_well)
    after = counts(folder)
    assert {name: after[name] for name in found.rows} == found.rows
    assert all(0 <= count - after[name] < 200 for name, count in before.items())


def test_pages_that_lead_to_one_another_are_gone_through_once(folder: Path) -> None:
    file = folder / "data.mdb"
    content = bytearray(file.read_bytes())
    branches = [
        page
        for page in range(2, len(content) // PAGE_BYTES)
        if PAGE.unpack_from(content, page * PAGE_BYTES)[0::2][:2] == (page, BRANCH)
    ]
    for page in branches:
        place = page * PAGE_BYTES
        node = place + int.from_bytes(content[place + 16 : place + 18], "little")
        content[node : node + 4] = page.to_bytes(4, "little")  # its first child is itself
    file.write_bytes(content)
    source = SalvagedFile(file)
    rows = sum([1 for name in DATABASES for _ in source.rows(name.decode())])
    source.close()
    assert rows > 100


def test_a_repair_of_a_broken_file_leaves_a_store_that_is_well(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = str(folder.parent)
    assert break_pages(folder / "data.mdb", LEAF, 2) == 2
    assert run(["store", "check", data, "--json"]) == 1
    assert run(["store", "repair", data, "--json"]) == 1
    capsysbinary.readouterr()
    run(["store", "repair", data, "--apply", "--yes", "--json"])
    done = json.loads(capsysbinary.readouterr().out)
    assert "rows lost:" in done["findings"][0]["repair"]
    assert [left for left in done["left"] if left["repair"]] == []
    assert (Path(done["aside"]) / "shard-0" / "data.mdb").exists()
    Store.open(folder).close()


@pytest.fixture
def unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with a large body, in the middle of which the disk cannot read."""
    environment = open_environment(folder, FORMAT, DATABASES)
    with environment.env.begin(write=True, db=environment.dbs[b"segments"]) as transaction:
        transaction.put(next(transaction.cursor().iternext(values=False)), NEEDLE * 10_000)
    environment.close()
    start = (folder / "data.mdb").read_bytes().index(NEEDLE * 1000) // BLOCK_BYTES * BLOCK_BYTES + 2 * BLOCK_BYTES
    inode, pread = (folder / "data.mdb").stat().st_ino, os.pread

    def read(descriptor: int, size: int, position: int) -> bytes:
        if os.fstat(descriptor).st_ino != inode or position + size <= start or position >= start + BLOCK_BYTES:
            return pread(descriptor, size, position)
        if position >= start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, start - position, position)

    monkeypatch.setattr(os, "pread", read)


@pytest.mark.usefixtures("unreadable")
def test_what_the_disk_cannot_read_is_lost_and_nothing_else(
    folder: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    data, before, original = str(folder.parent), counts(folder), (folder / "data.mdb").read_bytes()
    assert run(["store", "check", data, "--json"]) == 1
    assert b"the disk cannot read 4 KB of it" in capsysbinary.readouterr().out
    run(["store", "repair", data, "--apply", "--yes", "--json"])
    done = json.loads(capsysbinary.readouterr().out)
    assert "rows lost: 1 of" in done["findings"][0]["repair"]
    assert not done["left"]
    kept = (Path(done["aside"]) / "shard-0" / "data.mdb").read_bytes()
    assert len(kept) == len(original)
    assert 0 < len(original) - sum(map(operator.eq, kept, original)) <= BLOCK_BYTES
    assert counts(folder)["segments"] == before["segments"] - 1
    Store.open(folder).close()
