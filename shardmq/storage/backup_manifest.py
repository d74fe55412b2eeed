"""What a backup says of itself: whose it is, of which moment, and which files belong to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from xxhash import xxh3_128

from shardmq.errors import StoreRefused

MANIFEST: Final = "manifest.json"
_CHUNK_BYTES: Final = 1 << 20


class BackedUpFile(msgspec.Struct, frozen=True):
    """A file of a store; `checksum` is xxh3_128 of its content."""

    name: str
    bytes: int
    checksum: str


class BackedUp(msgspec.Struct, frozen=True):
    """A store, and its files in the folder of its name."""

    store: str
    files: list[BackedUpFile]


class Manifest(msgspec.Struct, frozen=True, tag_field="format", tag="shardmq-backup"):
    """What a backup says of itself. Times are seconds since 1970; what was confirmed by `settled_at` is in it."""

    broker: str
    generation: int
    shardmq: str
    began_at: float
    settled_at: float
    ended_at: float
    stores: list[BackedUp]


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup.

    Raises:
        StoreRefused: there is none, or it cannot be read.
    """
    file = folder / MANIFEST
    try:
        return msgspec.json.decode(file.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise StoreRefused(
            f"{folder} is no backup, or one that was not finished: it has no {MANIFEST}; take another one, or use an "
            "earlier one"
        ) from None
    except (OSError, msgspec.DecodeError) as fault:
        raise StoreRefused(f"{file} cannot be read: {fault}; use another backup") from fault


def copy_checked(source: Path, target: Path, expected: BackedUpFile, show: Callable[[int], None]) -> None:
    """Copy a file, and make sure that it is what was backed up.

    Args:
        source: in the backup.
        target: where to; it must not be there yet.
        expected: what the manifest says of it.
        show: called with the number of bytes of each piece.

    Raises:
        StoreRefused: it is not what was backed up.
    """
    checksum, count = xxh3_128(), 0
    try:
        with source.open("rb") as stream, target.open("xb") as sink:
            while chunk := stream.read(_CHUNK_BYTES):
                sink.write(chunk)
                checksum.update(chunk)
                count += len(chunk)
                show(len(chunk))
    except FileNotFoundError:
        raise StoreRefused(f"{source} is missing; the backup is not whole, use another one") from None
    if (count, checksum.hexdigest()) != (expected.bytes, expected.checksum):
        raise StoreRefused(
            f"{source} is not what was backed up ({count} of {expected.bytes} bytes, or damaged); use another backup"
        )
