"""What the commands that talk to a broker share: --url, --tls-… and --json, the connection, numbers, tables."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

if TYPE_CHECKING:
    from rich.table import Table

    from shardmq.client.sync.connection import Connection

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_URL: Final = "shardmq://guest:guest@127.0.0.1:5672/"

ANSWER_SECONDS: Final = 30.0
"""A broker that does not answer for so long has failed the command."""


def readable_url(context: click.Context, _option: click.Parameter, url: str) -> str:
    """The URL, if it is one, with the files for TLS that other options name.

    Raises:
        BadParameter: it is none; the text says why.
    """
    from shardmq.client.api.url import parse_all, with_files
    from shardmq.errors import InvalidRequest

    try:
        parse_all(url)
        url = with_files(url, context.meta.get(_FILES, {}))
        parse_all(url)
    except InvalidRequest as fault:
        raise click.BadParameter(fault.text) from fault
    return url


_FILES: Final = "shardmq.cmd.terminal.connection.files"


def _file_option(flag: str, name: str, help_text: str) -> Callable[[Command], Command]:
    """An option whose value goes into the URL."""

    def keep(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
        if path is not None:
            context.meta.setdefault(_FILES, {})[name] = str(path.resolve())

    return click.option(
        flag,
        callback=keep,
        is_eager=True,
        expose_value=False,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=help_text,
    )


_URL_OPTIONS: Final = (
    click.option(
        "--url",
        callback=readable_url,
        default=DEFAULT_URL,
        envvar="SHARDMQ_URL",
        show_envvar=True,
        show_default=True,
        metavar="URL",
        help="The broker, as shardmq://user:password@host:port/vhost; shardmqs:// is TLS.",
    ),
    _file_option(
        "--tls-ca",
        "cacertfile",
        "Authorities to trust the broker by (PEM).  [env var: SHARDMQ_TLS_CA; default: the system's]",
    ),
    _file_option("--tls-cert", "certfile", "The certificate to show the broker (PEM).  [env var: SHARDMQ_TLS_CERT]"),
    _file_option("--tls-key", "keyfile", "Its private key (PEM).  [env var: SHARDMQ_TLS_KEY]"),
)


def URL(command: Command) -> Command:
    """The options that say which broker: --url, and what TLS needs."""
    for option in reversed(_URL_OPTIONS):
        command = option(command)
    return command


JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")


def connected(url: str) -> "Connection":
    """A connection for a command: when it is lost the command ends and says so, and waits for no recovery."""
    from shardmq.client.sync.connection import connect

    return connect(url, timeout=ANSWER_SECONDS, recovery=None)


def print_json(value: Any) -> None:
    """One value as one line of JSON."""
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def counted(number: int, noun: str) -> str:
    """As "1 queue" or "2,000 queues"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def new_table(title: str, names: tuple[str, ...], numbers: tuple[str, ...] = (), caption: str | None = None) -> "Table":
    """An empty table: columns of names, then columns of numbers. It fits a terminal of 80."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        pad_edge=False,
    )
    for name in names:
        table.add_column(name, overflow="fold", min_width=len(name))
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    return table
