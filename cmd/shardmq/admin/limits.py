"""Limits of virtual hosts and users, as `vhost limits` and `user limits` have them; `shardmq watermark`."""

from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.connection import carry_out, rows_of
from shardmq.cmd.terminal.options import BROKER, JSON, ByteCount, MemoryAmount, named_limits
from shardmq.cmd.terminal.output import CommandFailed, print_json

if TYPE_CHECKING:
    from shardmq.client.sync.connection import Connection

LIMIT: Final = click.option(
    "--limit",
    "limits",
    callback=named_limits,
    multiple=True,
    metavar="NAME=NUMBER",
    help="Set a limit, as max-connections=100; max-connections=none lifts it. Without any: show them.",
)


def change_limits(noun: str, name: str, limits: dict[str, int | None], url: str, as_json: bool) -> None:
    """Set limits; show them where there are none to set.

    Args:
        noun: "vhost" or "user".
        name: whose.
        limits: by name; None lifts one.
        url: the broker.
        as_json: for machines.

    Raises:
        CommandFailed: there is nobody of that name.
    """
    if limits:
        words = ", ".join(f"{limit} {'lifted' if most is None else most}" for limit, most in limits.items())
        sentence = f"Changed limits of {noun} '{name}': {words}"
        carry_out(url, as_json, sentence, lambda connection: connection.limits_put(noun, name, limits))
        return
    for row in rows_of(url, f"{noun}s"):
        if row["name"] == name:
            if as_json:
                print_json(row["limits"])
            else:
                lines = [f"{limit} {most}" for limit, most in row["limits"].items()]
                click.echo("\n".join(lines) or f"{noun} '{name}' has no limits")
            return
    raise CommandFailed(f"there is no {noun} '{name}'; `shardmq {noun} list` shows all")


def _members(connection: "Connection") -> int:
    """How many processes share the memory.

    Raises:
        CommandFailed: the user does not see them.
    """
    members = [row for row in connection.status()["processes"] if row["role"] in ("shard", "gateway")]
    if not members:
        raise CommandFailed(
            "this user may not change watermarks: that takes the tag 'administrator' (`shardmq user tags` gives it)"
        )
    return len(members)


@click.command(short_help="Change the memory and disk watermarks of a running broker.")
@click.option("--memory", type=MemoryAmount(), metavar="BYTES|SHARE", help="Of shards and gateways together.")
@click.option("--disk-free", type=ByteCount(), metavar="BYTES", help="What must be free on the disk of each shard.")
@BROKER
@JSON
def watermark(*, memory: int | None, disk_free: int | None, url: str, as_json: bool) -> None:
    """Change the watermarks beyond which publishers are blocked, until the broker's processes end.

    `shardmq up --memory-watermark` and `--disk-free-limit` set them for good.
    """
    if memory is None and disk_free is None:
        raise CommandFailed("give --memory, --disk-free, or both")

    def change(connection: "Connection") -> None:
        share = None if memory is None else max(memory // _members(connection), 2)
        connection.watermarks_put(share, disk_free)

    carry_out(url, as_json, "Changed the watermarks", change)
