"""`shardmq backup` and `shardmq restore`: all stores of a broker, copied while it runs, and put back."""

import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.options import JSON, URL, ByteCount
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.values import counted, size
from shardmq.errors import StoreRefused, StoreUnwritable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from shardmq.storage.backup_manifest import Manifest

LOOK_SECONDS: Final = 0.2

RESTORING: Final = "restoring"
"""What a data directory that is being made is called, or what its name ends with."""

OF_A_VOLUME: Final = frozenset({"lost+found"})
"""What is in a volume's file system that is empty."""


@click.command(short_help="Copy all stores of a running broker.")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--rate",
    default="100MB",
    type=ByteCount(),
    show_default=True,
    metavar="BYTES",
    help="Bytes a second that all shards together copy at most.",
)
@URL
@JSON
def backup(*, directory: Path, rate: int, url: str, as_json: bool) -> int:
    """Copy all stores of a running broker into the new folder DIR, at a bounded rate, while it goes on.

    The processes of the broker write it themselves, each on its own host; the user needs the tag 'administrator'. All
    that was confirmed before is in it. It is finished when DIR has a manifest.json.
    """
    began = time.monotonic()
    with connected(url) as connection:
        connection.backup_begin(str(directory.resolve()), rate)
        with _progress("copying", as_json) as progress:
            tasks: dict[str, Any] = {}
            while (look := connection.backup_look())["state"] == "copying":
                _show(progress, tasks, look["stores"])
                time.sleep(LOOK_SECONDS)
            _show(progress, tasks, look["stores"])
    seconds = time.monotonic() - began
    if as_json:
        print_json({**look, "seconds": round(seconds, 3)})
    elif look["state"] == "done":
        total = sum(each["bytes"] for each in look["stores"])
        click.echo(
            f"Copied {counted(len(look['stores']), 'store')} ({size(total)}) to {look['directory']} in {seconds:.1f} s"
        )
    if look["state"] != "done":
        why = look["text"] or "the coordinator was started again meanwhile"
        click.secho(f"Error: no backup: {why}; remove {look['directory']}, and try again", fg="red", err=True)
        return 1
    return 0


@click.command(short_help="Make a data directory from a backup.")
@click.argument("directory", metavar="BACKUP", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data_dir", type=click.Path(path_type=Path))
@JSON
def restore(*, directory: Path, data_dir: Path, as_json: bool) -> None:
    """Make the data directory DATA_DIR, which must be empty or missing, from BACKUP. It may be a volume.

    Everything is checked against the backup's manifest. The restored broker gets an id of its own: none of its stores
    can be mixed up with those that the backup is of. It is one of one machine, also where that was one of several.
    """
    from shardmq.storage.backup_manifest import read_manifest

    manifest = read_manifest(directory)
    data_dir = data_dir.resolve()  # of ".", too, the name is needed
    aside = _aside_of(data_dir)
    broker, is_new_here = secrets.token_hex(8), data_dir == Path.cwd() and aside.parent != data_dir
    try:
        _copy(manifest, directory, aside, as_json)
        _rename(manifest, aside, broker)
        _put_in_place(manifest, aside, data_dir)
    except OSError as fault:
        raise StoreUnwritable(f"{aside} cannot be written: {fault.strerror}") from fault
    total = sum(file.bytes for each in manifest.stores for file in each.files)
    if as_json:
        print_json(
            {
                "broker": broker,
                "of": manifest.broker,
                "settled_at": manifest.settled_at,
                "bytes": total,
                "stores": [each.store for each in manifest.stores],
            }
        )
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.settled_at))
        shards = len(manifest.stores) - 1
        click.echo(
            f"Restored {counted(len(manifest.stores), 'store')} ({size(total)}) of {when} in {data_dir}; start "
            f"it with `shardmq up --data-dir {data_dir} --shards {shards}`"
            + (f", after `cd {data_dir}`, as it is a new folder" if is_new_here else "")
        )


def _aside_of(data_dir: Path) -> Path:
    """Where a data directory is made: beside it, or within where it cannot be replaced, such as a volume.

    Raises:
        StoreRefused: the data directory is not empty, or a restore into it was not finished.
    """
    is_fixed = data_dir.is_mount() or (data_dir.exists() and not os.access(data_dir.parent, os.W_OK))
    aside = data_dir / RESTORING if is_fixed else data_dir.with_name(f"{data_dir.name}.{RESTORING}")
    if aside.exists():
        raise StoreRefused(f"{aside} is there, from a restore that was not finished; remove it, and try again")
    if data_dir.exists() and any(entry.name not in OF_A_VOLUME for entry in data_dir.iterdir()):
        raise StoreRefused(f"{data_dir} is not empty; name a data directory that is not there yet")
    return aside


def _put_in_place(manifest: "Manifest", aside: Path, data_dir: Path) -> None:
    """Have what was made be the data directory. Within a volume, the coordinator first: it starts no shard anew."""
    from shardmq.storage.files import sync_folder

    if aside.parent != data_dir:
        if data_dir.exists():
            data_dir.rmdir()
        aside.rename(data_dir)
        sync_folder(data_dir.parent)
        return
    for store in sorted([each.store for each in manifest.stores]):
        (aside / store).rename(data_dir / store)
        sync_folder(data_dir)
    aside.rmdir()


def _copy(manifest: "Manifest", directory: Path, aside: Path, as_json: bool) -> None:
    from shardmq.storage.backup_manifest import copy_checked
    from shardmq.storage.files import make_folder, sync_file, sync_folder

    make_folder(aside)
    with _progress("restoring", as_json) as progress:
        for each in manifest.stores:
            task = progress.add_task(each.store, total=sum(file.bytes for file in each.files))
            make_folder(aside / each.store)
            for file in each.files:
                target = aside / each.store / file.name
                copy_checked(directory / each.store / file.name, target, file, _advance(progress, task))
                sync_file(target)
            sync_folder(aside / each.store)
        sync_folder(aside)


def _advance(progress: "Progress", task: Any) -> "Callable[[int], None]":
    return lambda count: progress.advance(task, count)


def _rename(manifest: "Manifest", aside: Path, broker: str) -> None:
    """Open every store, which checks it, and write the new broker's id into it."""
    from shardmq.coordinator.storage.schema import LAYOUT as COORDINATOR
    from shardmq.coordinator.storage.store import Store as CoordinatorStore
    from shardmq.replication.store.note import make_single
    from shardmq.shards.storage.schema import LAYOUT as SHARD
    from shardmq.shards.storage.store import Store as ShardStore
    from shardmq.shards.storage.write_batch import WriteBatch
    from shardmq.storage.files import sync_folder
    from shardmq.storage.redo.log import REDO, RedoLog

    numbers = [int(each.store.removeprefix("shard-")) for each in manifest.stores if each.store != "coordinator"]
    for each in manifest.stores:
        make_single(aside / each.store, COORDINATOR if each.store == "coordinator" else SHARD)
        RedoLog(aside / each.store / REDO, None).close()
    for number in numbers:
        folder = aside / f"shard-{number}"
        store = ShardStore.open(folder, number)
        try:
            store.write(WriteBatch(identity=msgspec.structs.replace(store.identity, broker=broker)))
        finally:
            store.close()
        sync_folder(folder)
    coordinator = CoordinatorStore.open(aside / "coordinator", "restored")
    try:
        coordinator.rename_broker(broker)
    finally:
        coordinator.close()
    sync_folder(aside / "coordinator")


def _progress(what: str, as_json: bool) -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn(what + " {task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        disable=as_json or not sys.stderr.isatty(),
    )


def _show(progress: "Progress", tasks: dict[str, Any], stores: list[dict[str, Any]]) -> None:
    for each in stores:
        if each["store"] not in tasks:
            tasks[each["store"]] = progress.add_task(each["store"], total=None)
        progress.update(tasks[each["store"]], completed=each["bytes"], total=max(each["total"], each["bytes"]) or None)
