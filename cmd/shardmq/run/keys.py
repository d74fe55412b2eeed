"""`shardmq keys`: pairs of keys for the processes of a broker that speak over TCP."""

from pathlib import Path
from typing import Final

import click

from shardmq.cmd.terminal.connection import JSON, new_table, print_json

KEYS_DIR: Final = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("shardmq-keys"),
    envvar="SHARDMQ_KEYS",
    show_envvar=True,
    show_default=True,
    help="Folder of the keys, as the processes take it with --keys.",
)


@click.group()
def keys() -> None:
    """Keys for processes that speak over TCP: create, list."""


@keys.command("create")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@KEYS_DIR
@JSON
def keys_create(*, names: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Make a pair of keys for each process NAME: coordinator, shard-0, gateway-0, …

    DIR/NAME.key_secret stays with that process alone; DIR/allowed/NAME.key is copied to all it talks with. NAME says
    what the process is: coordinator, shard-0 and so on are those, any other is the --name of a gateway.
    """
    from shardmq.bus.curve import create_pair
    from shardmq.topology.entities import check_name

    for name in names:
        check_name("process", name)
        if "/" in name or name.startswith("."):
            raise click.UsageError(f"'{name}' cannot be the name of a file; name a process, as shard-0")
    made = {name: create_pair(folder, name) for name in names}
    if as_json:
        print_json(
            [{"name": name, "public": str(public), "secret": str(secret)} for name, (public, secret) in made.items()]
        )
        return
    for name, (public, secret) in made.items():
        click.echo(f"{name}: {secret} is secret and stays with it; copy {public} to all it talks with")


@keys.command("list")
@KEYS_DIR
@JSON
def keys_list(*, folder: Path, as_json: bool) -> None:
    """Show whose keys are in the folder: all that are allowed, and the secrets that are here."""
    from shardmq.bus.curve import held

    rows = held(folder)
    if as_json:
        print_json(rows)
        return
    from rich.console import Console
    from rich.markup import escape

    table = new_table("keys", ("name", "public key", "allowed", "secret here"))
    for row in rows:
        held_here = ["yes" if row[which] else "no" for which in ("allowed", "secret")]
        table.add_row(escape(row["name"]), escape(row["public_key"]), *held_here)
    Console().print(table)
