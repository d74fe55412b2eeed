"""`shardmq store compact`: gives the free pages of files back to the disk."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.run.locks import hold_data_dir
from shardmq.cmd.store.progress import kind_of, stores_in
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.values import size
from shardmq.errors import ShardmqError, StoreRefused, StoreUnwritable

if TYPE_CHECKING:
    from shardmq.storage.lmdb_environment import LmdbEnvironment

LEAST_BYTES: Final = 1 << 20
"""Fewer free pages are not worth a copy."""

LOOK_SECONDS: Final = 0.2

Show = Callable[[int, int], None]
"""Called with the bytes copied, and the bytes in all."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The outcome for a store.

    Attributes:
        store: its folder's name.
        bytes_before: size of its file on the disk before.
        bytes_after: size of its file on the disk now.
        error: why it was not changed; "" without an error.
    """

    store: str
    bytes_before: int
    bytes_after: int
    error: str = ""


@click.command(short_help="Give the free pages of stores back to the disk.")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@JSON
def compact(*, data_dir: Path, as_json: bool) -> int:
    """Give the space that the stores in DATA_DIR do not need back to the disk.

    Each store's file is copied without its free pages, and the copy takes its place. The disk must have room for the
    largest copy; a store for which it has none is left as it is, and the exit code is 1.
    """
    with hold_data_dir(data_dir):
        folders = stores_in(data_dir)
        if not folders:
            raise StoreRefused(f"{data_dir} has no stores; name a data directory as `shardmq up` makes it")
        done = [_compact(folder, as_json) for folder in folders]
    if as_json:
        print_json({"stores": [asdict(each) for each in done]})
    else:
        for each in done:
            click.echo(f"{each.store}: {size(each.bytes_before)} before, {size(each.bytes_after)} now")
            if each.error:
                click.secho(f"Error: {each.error}", fg="red", err=True)
    return 1 if any(each.error for each in done) else 0


def _compact(folder: Path, as_json: bool) -> Compacted:
    """Compact one store, if that saves enough and the disk has room."""
    from shardmq.storage.compaction import clear

    environment = _opened(folder)
    clear(folder)
    before = _disk_bytes(environment.file)
    try:
        with _progress(folder.name, as_json) as show:
            environment = _copied(environment, show)
    except ShardmqError as fault:
        return Compacted(folder.name, before, before, fault.text)
    finally:
        environment.close()
    return Compacted(folder.name, before, _disk_bytes(environment.file))


def _opened(folder: Path) -> "LmdbEnvironment":
    from shardmq.storage.lmdb_environment import open_environment

    format_of_store, databases, _ = kind_of(folder)
    return open_environment(folder, format_of_store, databases)


def _copied(environment: "LmdbEnvironment", show: Show) -> "LmdbEnvironment":
    """Copy the store into a new file, unless that saves too little; returns the open store.

    Raises:
        StoreUnwritable: there is no room for the copy, or it could not be made.
    """
    from shardmq.storage.compaction import COPY, UNMADE, copy, swap
    from shardmq.storage.disk_space import free_for, room_of

    room = room_of(environment)
    if room.inside < LEAST_BYTES:
        return environment
    free, _ = free_for(environment, 0)
    if room.used > free:
        text = f"a copy of {environment.file} takes {size(room.used)}, and its disk has {size(free)} free"
        raise StoreUnwritable(f"{text}; make room, or compact it where there is some")
    with ThreadPoolExecutor(1) as threads:
        copying = threads.submit(copy, environment)
        while wait([copying], LOOK_SECONDS).not_done:
            made = environment.folder / COPY
            show(made.stat().st_size if made.exists() else 0, room.used)
    fault = copying.exception()
    if isinstance(fault, UNMADE):
        raise StoreUnwritable(f"{environment.file} was not compacted: {fault}; it is as it was") from fault
    if fault is not None:
        raise fault
    return swap(environment)


def _disk_bytes(file: Path) -> int:
    return file.stat().st_blocks * 512


@contextlib.contextmanager
def _progress(name: str, as_json: bool) -> Iterator[Show]:
    """Show the progress of a copy on stderr when it is a terminal."""
    if as_json or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeElapsedColumn

    with Progress(
        f"copying {name}",
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
