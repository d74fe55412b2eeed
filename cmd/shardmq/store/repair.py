"""`shardmq store repair`: removes or rebuilds what is damaged, and keeps the rest."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.store.progress import (
    COORDINATOR,
    FOLDER,
    REBUILDS,
    Looked,
    held,
    kind_of,
    look_through,
    print_findings,
)
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import confirm, print_json
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from shardmq.storage.repair.findings import Finding

EXIT_DAMAGE: Final = 1


@click.command(short_help="Remove or rebuild what is damaged, keeping the original.")
@FOLDER
@click.option("--apply", "is_applied", is_flag=True, help="Carry the repair out; without this, only show it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@JSON
def repair(*, folder: Path, is_applied: bool, yes: bool, as_json: bool) -> int:
    """Show what a repair of the stores in data directory DIR would do and lose; do it with --apply.

    The broker must not be running. The original of every store that is changed is copied to DIR/aside-<time> first.
    Exit code: 0 all is well, 1 something is (or stays) damaged, 78 the stores cannot be opened.
    """
    from rich.console import Console

    progress = Console(stderr=True)
    with held(folder) as stores:
        looked = look_through(stores, progress)
        damage = looked.damage
        if not as_json:
            _say(folder, looked)
        aside: Path | None = None
        after: Looked | None = None
        changed = [store for store in stores if any(each.store == store.name and each.mend for each in damage)]
        if is_applied and changed:
            confirm("Apply this repair?", "a repair removes what cannot be rebuilt", yes)
            aside = _keep_aside(folder, changed)
            if _rebuild(stores, damage):
                broken = [each for each in damage if each.mend.startswith(REBUILDS)]
                damage = broken + look_through(stores, progress).damage
            _mend(stores, damage)
            after = look_through(stores, progress)
    left = damage if after is None else after.damage
    if as_json:
        print_json(
            {
                "applied": after is not None,
                "aside": None if aside is None else str(aside),
                "messages_lost": sum([finding.messages for finding in damage]),
                "findings": [finding.table() for finding in looked.findings],
                "left": [finding.table() for finding in left],
            }
        )
    elif after is not None:
        if not left:
            click.echo(f"Repaired. The original is in {aside}; delete it when you miss nothing.")
        else:
            click.echo("Not all of it can be repaired; restore a copy (`shardmq restore`).")
            click.echo(f"The original is in {aside}. Still damaged:")
            print_findings(left)
    elif damage and not changed:
        click.echo("Nothing was changed: no repair is known for this damage; restore a copy (`shardmq restore`).")
    elif damage:
        click.echo("Nothing was changed; --apply does it.")
    return EXIT_DAMAGE if left else 0


def _say(folder: Path, looked: Looked) -> None:
    """Print what would be done, and what would be lost."""
    if not looked.damage:
        click.echo(f"{folder}: all is well; there is nothing to repair.")
        return
    print_findings(looked.damage)
    messages = sum([finding.messages for finding in looked.damage])
    click.echo(f"{counted(messages, 'message')} would be lost, as far as that can be counted.")


def _keep_aside(folder: Path, changed: list[Path]) -> Path:
    """Copy the originals of the stores that are to be changed; returns where they are."""
    from shardmq.storage.repair.repair import check_room, folder_bytes, keep_aside

    check_room(folder, sum([folder_bytes(store) for store in changed]))
    aside = folder / f"aside-{time.strftime('%Y%m%d-%H%M%S')}"
    for store in changed:
        keep_aside(store, aside)
    return aside


def _rebuild(stores: list[Path], damage: "list[Finding]") -> bool:
    """Make new files where the structure of the old ones is damaged; returns whether there were such."""
    from shardmq.storage.repair.rebuild import rebuild

    broken = {each.store for each in damage if each.mend.startswith(REBUILDS)}
    for store in stores:
        if store.name in broken:
            rebuild(store, *kind_of(store))
    return bool(broken)


def _mend(stores: list[Path], damage: "list[Finding]") -> None:
    """Write what the findings say."""
    for store in stores:
        edits = [edit for each in damage if each.store == store.name for edit in each.edits]
        if not edits:
            continue
        if store.name == COORDINATOR:
            from shardmq.coordinator.storage.check import mend as mend_registry

            mend_registry(store, edits)
        else:
            from shardmq.shards.check.closed_store import mend

            mend(store, edits)
