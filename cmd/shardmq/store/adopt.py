"""`shardmq store adopt`: rebuilds a lost coordinator's store from the shards'."""

import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.run.locks import hold_data_dir
from shardmq.cmd.store.progress import shard_folders
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json, warn
from shardmq.cmd.terminal.values import counted
from shardmq.errors import StartupRefused, StoreRefused

if TYPE_CHECKING:
    from shardmq.coordinator.storage.adoption import Adoption, Recorded

NEW: Final = "coordinator.adopting"
"""The folder of the new store, until it takes the old one's place."""


@click.command(short_help="Rebuild a lost coordinator's store from the shards'.")
@click.argument("data_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--apply", is_flag=True, help="Carry it out; without this, only show what would be done.")
@JSON
def adopt(*, data_dir: Path, apply: bool, as_json: bool) -> None:
    """Rebuild the coordinator's store in DATA_DIR from what the shards there have recorded.

    All durable queues come back with their arguments and messages. Exchanges, bindings, users and permissions are taken
    from the store that is there, if it can be read and is the same broker's, however old; else they cannot be rebuilt.
    That store is moved aside, never deleted. The folders of all shards must be in DATA_DIR; a shard whose folder is not
    there is given up with its messages.
    """
    with hold_data_dir(data_dir):
        shards = [_recorded(folder, number) for number, folder in shard_folders(data_dir)]
        if not shards:
            raise StoreRefused(f"{data_dir} has no shard's folder; name a data directory as `shardmq up` makes it")
        done, reason = _rebuild(data_dir, shards)
        aside = _put_in_place(data_dir) if apply else None
        if not apply:
            shutil.rmtree(data_dir / NEW)
    if as_json:
        print_json(
            {**asdict(done), "applied": apply, "not_kept_because": reason, "moved_to": str(aside) if aside else None}
        )
    else:
        _print(done, shards, reason, aside, apply)


def _recorded(folder: Path, number: int) -> "Recorded":
    from shardmq.coordinator.storage.adoption import Recorded
    from shardmq.shards.storage.store import Store

    if not (folder / "data.mdb").exists():
        raise StoreRefused(f"{folder} has no data.mdb; put it back, or move the folder away to give the shard up")
    store = Store.open(folder, number)
    try:
        contents = store.load()
        mine = store.identity
        ended = max((end - 1 for _, end in contents.ended), default=0)
        waiting = {place.transaction for place in store.staging.all()}
        waiting.update(transaction for transaction, _ in contents.sealed)
        highest = max([ended, *waiting, *contents.concluding])
        return Recorded(
            number,
            mine.store,
            mine.broker,
            mine.generation,
            mine.queue,
            contents.queues,
            frozenset(waiting - set(contents.concluding)),
            highest,
        )
    finally:
        store.close()


def _rebuild(data_dir: Path, shards: "list[Recorded]") -> "tuple[Adoption, str]":
    """Build the new store beside the old one; returns the outcome, and why the old one was not used."""
    from shardmq.coordinator.storage.adoption import adopt as adopt_shards
    from shardmq.coordinator.storage.adoption import broker_of
    from shardmq.storage.folder_lock import lock_folder
    from shardmq.storage.redo.log import REDO

    broker_of(shards)
    old, new = data_dir / "coordinator", data_dir / NEW
    reason = "there is none"
    with ExitStack() as stack:
        if (old / "data.mdb").exists():
            stack.callback(os.close, lock_folder(old))
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for name in ("data.mdb", REDO):
                if (old / name).exists():
                    shutil.copy2(old / name, new / name)
            try:
                return adopt_shards(new, shards), ""
            except StartupRefused as fault:
                reason = fault.text
    shutil.rmtree(new, ignore_errors=True)
    return adopt_shards(new, shards), reason


def _put_in_place(data_dir: Path) -> Path | None:
    from shardmq.storage.files import sync_file, sync_folder
    from shardmq.storage.redo.log import REDO

    old, new = data_dir / "coordinator", data_dir / NEW
    sync_file(new / "data.mdb")
    sync_file(new / REDO)
    sync_folder(new)
    aside = None
    if old.exists():
        aside = data_dir / time.strftime("coordinator-until-%Y%m%d-%H%M%S")
        old.rename(aside)
    new.rename(old)
    sync_folder(data_dir)
    return aside


def _print(done: "Adoption", shards: "list[Recorded]", reason: str, aside: Path | None, is_done: bool) -> None:
    """Say what was done, or what --apply would do."""

    def say(number: int, past: str, verb: str, sentence: str) -> None:
        if number:
            click.echo(f"{past if is_done else f'Would {verb}'} {sentence}")

    numbers = ", ".join(str(each.shard) for each in shards)
    click.echo(f"Read {counted(len(shards), 'shard')} of broker {done.broker}: {numbers}")
    queues, empty = counted(len(done.queues), "durable queue"), counted(len(done.empty), "durable queue")
    say(len(done.queues), "Took", "take", f"{queues} from the shards, with all messages")
    lost = ", ".join(f"'{name}' in virtual host '{vhost}' (shard {shard})" for vhost, name, shard in done.empty)
    say(len(done.empty), "Took", "take", f"{empty} from the old store, empty, as no shard has them: {lost}")
    vhosts = f"{counted(len(done.vhosts), 'virtual host')} for these queues: " + ", ".join(map(repr, done.vhosts))
    say(len(done.vhosts), "Made", "make", vhosts)
    gone, unknown = counted(len(done.gone), "queue"), counted(done.aborted, "transaction")
    say(len(done.gone), "Marked", "mark", f"{gone} for removal: deleted, or exclusive to a connection that is gone")
    say(done.aborted, "Marked", "mark", f"{unknown} for abortion: nobody knows whether to commit")
    if done.kept:
        say(1, "Kept", "keep", "exchanges, bindings, users, permissions and transactions of the old store")
    else:
        warn(f"the old store cannot be used: {reason}")
        click.echo(
            "Not rebuilt: exchanges, bindings, permissions, transactions, and users other than 'guest'; the default "
            "exchange routes to every queue by its name"
        )
    if is_done:
        click.echo("Rebuilt the coordinator's store" + (f"; the old one is in {aside}" if aside else ""))
    else:
        click.echo("Nothing was changed; --apply does it.")
