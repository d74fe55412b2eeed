"""`shardmq keys`: key pairs for the processes of a broker that talk over TCP."""

from pathlib import Path
from typing import Final

import click

from shardmq.cmd.run.hosts.options import host_names
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.options import JSON, LIST
from shardmq.cmd.terminal.output import CommandFailed, print_json
from shardmq.cmd.terminal.rows import Column, RowChoice, extras
from shardmq.cmd.terminal.tables import print_list
from shardmq.cmd.terminal.values import counted
from shardmq.limits import SHARDS_MAX

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
COLUMNS: Final = (
    Column("name"),
    Column("public_key"),
    Column("allowed"),
    Column("secret", text=lambda is_here: "here" if is_here else "elsewhere"),
    *extras("role"),
)


@click.group()
def keys() -> None:
    """Create and list keys of processes that talk over TCP."""


@keys.command("create")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@KEYS_DIR
@JSON
def keys_create(*, names: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Create a key pair for each process NAME, such as coordinator, shard-0 or gateway-0.

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
        click.echo(f"Created keys of '{name}': {secret} stays with it; copy {public} to all it talks with")


@keys.command("hosts")
@click.argument("names", nargs=-1, required=True, metavar="HOST…", callback=host_names)
@click.option("--shards", type=WholeNumber(1, SHARDS_MAX), default=4, show_default=True, help="Shards of the broker.")
@click.option("--gateways", type=WholeNumber(1, 64), default=4, show_default=True, help="Gateways of each host.")
@KEYS_DIR
@JSON
def keys_hosts(*, names: tuple[str, ...], shards: int, gateways: int, folder: Path, as_json: bool) -> None:
    """Create keys of all processes of each HOST of a broker on several hosts, those that are missing.

    DIR/HOST is the folder for that host, as `shardmq up --keys` takes it. To add a host, or shards, name all hosts
    again, and copy the folders again.
    """
    from shardmq.cmd.run.hosts.keys import create_missing

    processes = ["coordinator", *(f"shard-{index}" for index in range(shards))]
    processes += [f"gateway-{index}" for index in range(gateways)]
    made = create_missing(folder, names, processes)
    if as_json:
        print_json({"created": made, "folders": {name: str(folder / name) for name in names}})
        return
    folders = ", ".join(str(folder / name) for name in names)
    click.echo(f"Created {counted(len(made), 'key pair')}; copy each folder to its host, as --keys: {folders}")


@keys.command("list")
@KEYS_DIR
@LIST
def keys_list(*, folder: Path, choice: RowChoice, as_json: bool) -> None:
    """List the keys in the folder: which are allowed, and whose secret key is here."""
    from shardmq.bus.curve import held

    if not folder.is_dir():
        raise CommandFailed(
            f"there is no folder {folder}; name one with --dir, or make keys with `shardmq keys create`"
        )
    rows = held(folder)
    if not rows:
        raise CommandFailed(
            f"{folder} has no keys; name another folder with --dir, or make keys with `shardmq keys create`"
        )
    print_list("keys", rows, COLUMNS, choice, as_json)
