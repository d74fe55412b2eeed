"""`shardmq store check`: reads all that is stored, and shows what is damaged."""

from pathlib import Path
from typing import Final

import click

from shardmq.cmd.store.progress import FOLDER, held, look_through, print_findings
from shardmq.cmd.terminal.options import JSON
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.values import counted

EXIT_DAMAGE: Final = 1


@click.command(short_help="Read everything that is stored, and show what is damaged.")
@FOLDER
@JSON
def check(*, folder: Path, as_json: bool) -> int:
    """Read every row and every message in the stores of data directory DIR, and show what is damaged.

    The broker must not be running. Nothing is changed. Exit code: 0 all is well, 1 something is damaged, 78 the stores
    cannot be opened.
    """
    from rich.console import Console

    with held(folder) as stores:
        looked = look_through(stores, Console(stderr=True))
    damage = looked.damage
    if as_json:
        print_json(
            {
                "stores": looked.stores,
                "rows": looked.rows,
                "damage": len(damage),
                "findings": [finding.table() for finding in looked.findings],
            }
        )
        return EXIT_DAMAGE if damage else 0
    if looked.findings:
        print_findings(looked.findings)
    stores_read = f"Read {counted(looked.rows, 'row')} in {counted(len(looked.stores), 'store')}"
    if damage:
        click.echo(f"{stores_read}: {len(damage)} damaged. `shardmq store repair {folder}` shows what it would do.")
        return EXIT_DAMAGE
    click.echo(f"{stores_read}: all is well.")
    return 0
