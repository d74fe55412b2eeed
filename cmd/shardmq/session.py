"""What the commands that talk to a broker share: the --url and --json options, and output for machines."""

import sys
from typing import Any, Final

import click
import msgspec

DEFAULT_URL: Final = "shardmq://guest:guest@127.0.0.1:5672/"

URL: Final = click.option(
    "--url",
    default=DEFAULT_URL,
    envvar="SHARDMQ_URL",
    show_envvar=True,
    show_default=True,
    metavar="URL",
    help="The broker, as shardmq://user:password@host:port/vhost.",
)
JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")


def print_json(value: Any) -> None:
    """One value as one line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()
