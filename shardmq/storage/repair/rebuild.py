"""A store whose file's structure is damaged, built anew from the rows that can still be reached."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from shardmq.errors import StoreRefused
from shardmq.storage.files import sync_folder
from shardmq.storage.lmdb_environment import open_environment
from shardmq.storage.repair.salvage import Salvage, SalvagedFile

PORTION: Final = 1000
"""Rows written in one transaction."""

IsWell = Callable[[int, bytes, bytes], bool]
"""Whether a row of a database (its number), with that key and value, is what was written."""


def reachable(file: Path, databases: Sequence[bytes], is_well: IsWell) -> Salvage | None:
    """Return how much of a damaged file a new one would have; None where nothing of it can be trusted.

    Args:
        file: LMDB's.
        databases: names of its databases.
        is_well: tells rows that were written from others.
    """
    try:
        source = SalvagedFile(file)
    except StoreRefused:
        return None
    try:
        if dict(source.rows("meta")).get(b"version") == b"1":
            return None  # its rows have no checksums: nobody can tell which are well
        source.found.expected.pop("meta")
        counts = [sum([1 for _ in _rows(source, number, name, is_well)]) for number, name in enumerate(databases)]
        source.found.rows = {name.decode(): count for name, count in zip(databases, counts, strict=True)}
        return source.found
    finally:
        source.close()


def rebuild(folder: Path, format: bytes, databases: Sequence[bytes], is_well: IsWell) -> None:
    """Put a new file, with all rows that can be reached and are well, in the place of a damaged one.

    Args:
        folder: of the store; a copy of it is kept elsewhere.
        format: of the store.
        databases: names of its databases.
        is_well: tells rows that were written from others.
    """
    made = folder / "rebuilt"
    shutil.rmtree(made, ignore_errors=True)
    environment = open_environment(made, format, tuple(databases))
    source = SalvagedFile(folder / "data.mdb")
    try:
        for number, name in enumerate(databases):
            rows = _rows(source, number, name, is_well)
            while portion := [row for _, row in zip(range(PORTION), rows, strict=False)]:
                with environment.env.begin(write=True, db=environment.dbs[name]) as transaction:
                    for key, value in portion:
                        transaction.put(key, value)
    finally:
        source.close()
        environment.close()
    os.replace(made / "data.mdb", folder / "data.mdb")
    shutil.rmtree(made)
    sync_folder(folder)


def shortfall(found: Salvage) -> str:
    """Return what cannot be reached, as text."""
    missing = [
        f"{found.expected[name] - count:,} of {found.expected[name]:,} in {name}"
        for name, count in found.rows.items()
        if count < found.expected[name]
    ]
    return ", ".join(missing) if missing else "none"


def _rows(source: SalvagedFile, number: int, name: bytes, is_well: IsWell) -> Iterator[tuple[bytes, bytes]]:
    for key, value in source.rows(name.decode()):
        if key and is_well(number, key, value):
            yield key, value
