"""Types of parameters, and the options of commands that talk to a broker. Each is declared here, once."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from shardmq.client.api.url import DEFAULT_URL, parse_all, with_files, with_vhost
from shardmq.cmd.terminal.contexts import default_url
from shardmq.cmd.terminal.rows import Condition, RowChoice
from shardmq.cmd.terminal.values import INTEGER_MAX, is_sendable, read_bytes
from shardmq.errors import InvalidRequest
from shardmq.limits import MESSAGE_BYTES_HIGHEST

Command = TypeVar("Command", bound=Callable[..., Any])
Parameter = click.Parameter | None
Context = click.Context | None


class ByteCount(click.ParamType[int]):
    """Bytes, as 512MiB, 1.5GB or 1000000."""

    name = "bytes"

    def convert(self, value: Any, param: Parameter, ctx: Context) -> int:  # noqa: ARG002
        """The number of bytes."""
        return value if isinstance(value, int) else read_bytes(value)


class MessageSize(ByteCount):
    """Bytes of a message, from 1 to the most that any message can have."""

    def convert(self, value: Any, param: Parameter, ctx: Context) -> int:
        """The number of bytes."""
        size = super().convert(value, param, ctx)
        if not 1 <= size <= MESSAGE_BYTES_HIGHEST:
            most = MESSAGE_BYTES_HIGHEST >> 20
            raise click.BadParameter(f"'{value}' is not from 1 byte to {most}MiB; write it as 16MiB or 128MiB")
        return size


class MemoryAmount(ByteCount):
    """A share of the machine's memory, as 0.4, or bytes."""

    def convert(self, value: Any, param: Parameter, ctx: Context) -> int:
        """The number of bytes."""
        from shardmq.runtime.memory import machine_bytes

        try:
            share = float(value)
        except ValueError:
            share = 0.0
        amount = int(share * machine_bytes()) if 0 < share <= 1 else super().convert(value, param, ctx)
        if not amount:
            raise click.BadParameter(
                f"'{value}' would block publishers for ever; write a share as 0.4, or bytes as 2GiB"
            )
        return amount


class BrokerUrl(click.ParamType[str]):
    """The URL of a broker."""

    name = "url"

    def convert(self, value: Any, param: Parameter, ctx: Context) -> str:  # noqa: ARG002
        """The URL, with the files for TLS and the virtual host that other options name."""
        given = {} if ctx is None else ctx.meta
        try:
            parse_all(value)
            url = with_files(value, given.get(_FILES, {}))
            if _VHOST in given:
                url = with_vhost(url, given[_VHOST])
            parse_all(url)
        except InvalidRequest as fault:
            raise click.BadParameter(fault.text) from fault
        return url


_FILES: Final = "shardmq.cmd.terminal.options.files"
_VHOST: Final = "shardmq.cmd.terminal.options.vhost"


def named_values(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE, any number of times; a value is JSON where it is valid JSON, else a string."""
    found: dict[str, Any] = {}
    for name, text in _pairs(values):
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
        if not _fits(found[name]):
            raise click.BadParameter(f"'{name}={text}' has a whole number of more than 64 bits; give a smaller one")
    return found


def _fits(value: Any) -> bool:
    """Whether a value has no whole number that is too large to be sent."""
    if isinstance(value, dict | list):
        return all(_fits(inner) for inner in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int) or abs(value) <= INTEGER_MAX


def named_texts(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """NAME=TEXT, any number of times."""
    return dict(_pairs(values))


def named_limits(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, int | None]:
    """NAME=NUMBER, any number of times; NAME=none is None."""
    found: dict[str, int | None] = {}
    for name, text in _pairs(values):
        if text != "none" and not text.isdecimal():
            raise click.BadParameter(f"'{name}={text}' is not of the form {name}=NUMBER or {name}=none")
        if text != "none" and not is_sendable(text):
            raise click.BadParameter(f"'{name}={text}' is more than any limit can be; {name}=none lifts it")
        found[name] = None if text == "none" else int(text)
    return found


def _pairs(values: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"'{value}' is not of the form NAME=VALUE; give a name, =, and its value")
        pairs.append((name, text))
    return pairs


def all_of(command: Command, options: tuple[Callable[[Any], Any], ...]) -> Command:
    """A command with several options, in this order."""
    for option in reversed(options):
        command = option(command)
    return command


JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
RECORD: Final = click.option(
    "--record",
    "record_to",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the figures into this file; rows in it that were not measured stay.",
)
RECORDS: Final = click.option(
    "--record",
    "record_in",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Write the figures into files of this folder; rows in them that were not measured stay.",
)
YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")
ARGUMENTS: Final = click.option(
    "--argument",
    "-a",
    "arguments",
    callback=named_values,
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument, as x-max-length=1000; a value that is JSON is taken as such, else as a string.",
)
DURABLE: Final = click.option(
    "--durable/--transient", default=True, show_default=True, help="Whether it survives a restart of the broker."
)


def _file_option(flag: str, name: str, help_text: str) -> Callable[[Command], Command]:
    """An option whose value goes into the URL."""

    def keep(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
        if path is not None:
            context.meta.setdefault(_FILES, {})[name] = str(path.resolve())

    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option(flag, callback=keep, is_eager=True, expose_value=False, type=file, help=help_text)


def _keep_vhost(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name == "":
        raise click.BadParameter("a virtual host has a name; the default one's is /")
    if name is not None:
        context.meta[_VHOST] = name


_VHOST_OPTION: Final = click.option(
    "--vhost",
    callback=_keep_vhost,
    is_eager=True,
    expose_value=False,
    metavar="NAME",
    help="The virtual host.  [default: the URL's]",
)

_URL_OPTIONS: Final = (
    click.option(
        "--url",
        type=BrokerUrl(),
        default=default_url,
        envvar="SHARDMQ_URL",
        show_envvar=True,
        show_default=f"the selected context's, else {DEFAULT_URL}",
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


def BROKER(command: Command) -> Command:
    """The options that say which broker: --url, and what TLS needs."""
    return all_of(command, _URL_OPTIONS)


def URL(command: Command) -> Command:
    """The options that say which broker and virtual host: --vhost, --url, and what TLS needs."""
    return BROKER(_VHOST_OPTION(command))


def TLS_FILES(command: Command) -> Command:
    """The options for TLS alone, of commands that get a URL in another way."""
    return all_of(command, _URL_OPTIONS[1:])


def _conditions(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[Condition, ...]:
    return tuple(map(Condition.read, texts))


def _column_names(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in (text or "").split(","))))


_LIST_OPTIONS: Final = (
    click.option(
        "--sort",
        callback=_column_names,
        metavar="COLUMN,…",
        help="Order of the rows, by one column or several; -COLUMN is from the greatest to the least.",
    ),
    click.option(
        "--filter",
        "conditions",
        callback=_conditions,
        multiple=True,
        metavar="CONDITION",
        help="Only rows for which this holds, as 'name=orders*', 'ready>100' or 'type!=direct'; may be given several "
        "times.",
    ),
    click.option("--columns", callback=_column_names, metavar="COLUMN,…", help="These columns, in this order."),
    click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="JSON on stdout, for machines. In a pipe, lists without it are tab-separated, one row a line.",
    ),
)


def LIST(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a list. The command gets them as `choice`, a `RowChoice`, and `as_json`."""

    @functools.wraps(command)
    def listing(
        *, sort: tuple[str, ...], conditions: tuple[Condition, ...], columns: tuple[str, ...], **more: Any
    ) -> None:
        command(choice=RowChoice(sort, conditions, columns), **more)

    return all_of(listing, _LIST_OPTIONS)
