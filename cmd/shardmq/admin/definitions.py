"""`shardmq definitions`: everything durable of a broker as JSON of RabbitMQ's shape, out and in."""

import sys
from pathlib import Path

import click
import msgspec

from shardmq.cmd.terminal.connection import connected
from shardmq.cmd.terminal.files import write_anew
from shardmq.cmd.terminal.options import JSON, URL
from shardmq.cmd.terminal.output import CommandFailed, print_json, warn
from shardmq.cmd.terminal.values import counted


@click.group(short_help="All that is durable, as RabbitMQ's JSON: export, import.")
def definitions() -> None:
    """Users, virtual hosts, permissions, exchanges, queues, bindings: export, import."""


@definitions.command("export")
@click.argument("file", type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path), default="-")
@URL
@JSON
def definitions_export(*, file: Path, url: str, as_json: bool) -> None:
    """Write all that is durable to FILE, or to stdout. It has the hashes of passwords: you alone may read FILE."""
    with connected(url) as connection:
        exported = connection.definitions_export()
    text = msgspec.json.encode(exported)
    if str(file) == "-":
        sys.stdout.buffer.write((text if as_json else msgspec.json.format(text, indent=2)) + b"\n")
        sys.stdout.buffer.flush()
        return
    try:
        write_anew(file, msgspec.json.format(text, indent=2) + b"\n")
    except OSError as fault:
        raise click.FileError(str(file), fault.strerror) from fault
    nouns = {noun: len(rows) for noun, rows in exported.items() if isinstance(rows, list)}
    if as_json:
        print_json({"ok": True, "file": str(file), "exported": nouns})
    else:
        click.echo(f"Exported {listed(nouns)} to {file}")


@definitions.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@URL
@JSON
def definitions_import(*, file: Path, url: str, as_json: bool) -> None:
    """Make what FILE (- for stdin) has and the broker has not. Exports of RabbitMQ load as well.

    Users, permissions, limits, policies and shovels become those of FILE; topics, queues and exchanges that are there
    but different stay as they are. What is left out is said.
    """
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        wanted = msgspec.json.decode(raw, type=dict)
    except msgspec.DecodeError as fault:
        raise CommandFailed(
            f"{file} holds no JSON object: {fault}; export one with `shardmq definitions export`"
        ) from fault
    with connected(url) as connection:
        outcome = connection.definitions_import(wanted)
    if as_json:
        print_json(outcome)
        return
    click.echo(f"Imported {listed(outcome['imported'])}")
    for sentence in outcome["skipped"]:
        warn(f"skipped: {sentence}")


def listed(nouns: dict[str, int]) -> str:
    """Numbers of several nouns, as "2 users, 1 queue"."""
    return ", ".join(counted(count, noun.removesuffix("s")) for noun, count in nouns.items() if count) or "nothing"
