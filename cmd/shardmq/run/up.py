"""`shardmq up`: a whole broker on this machine."""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from click.core import ParameterSource

from shardmq.client.api.url import DEFAULT_URL
from shardmq.cmd.run.hosts.options import HostOptions, host_options
from shardmq.cmd.run.invocation import program
from shardmq.cmd.run.notices import Notice
from shardmq.cmd.run.roster import BrokerOptions
from shardmq.cmd.run.supervisor import supervise
from shardmq.cmd.terminal.numbers import WholeNumber
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.process_options import (
    DATA_DIR,
    DEFINITIONS,
    DISK_FREE_LIMIT,
    MESSAGE_SIZE_MAX,
    OTLP_ENDPOINT,
    ManagementChoice,
    log_options,
    management_options,
    memory_watermark,
    tls_options,
)
from shardmq.cmd.terminal.values import counted
from shardmq.limits import SHARDS_MAX
from shardmq.runtime import notify
from shardmq.runtime.cores import core_count
from shardmq.runtime.logs import LogOptions, timestamp

if TYPE_CHECKING:
    from shardmq.runtime.tls import TlsOptions

MEMORY_WATERMARK: Final = memory_watermark(
    "shards and gateways together take", "0.6, and 256MiB for each at least", "SHARDMQ_UP_MEMORY_WATERMARK"
)

GATEWAYS_MAX: Final = 64

CORES_PER_GATEWAY: Final = 2
"""The other half is for shards, for clients on this machine and for the kernel: where messages go to many queues one by
one, or come over many connections, gateways take two thirds of what a broker takes of the processor."""

GATEWAYS_PER_SHARD: Final = 2
"""For the same reason, more than two would wait for their shard."""

EVERYWHERE: Final = "0.0.0.0"
"""Address for clients of one of several hosts where nobody says: they come from elsewhere, and user `guest`, who may
come from this machine alone, by 127.0.0.1."""

_log = logging.getLogger(__name__)


@click.command()
@click.option(
    "--shards",
    type=WholeNumber(1, SHARDS_MAX),
    default=4,
    show_default=True,
    envvar="SHARDMQ_UP_SHARDS",
    show_envvar=True,
    help="Number of shard processes. It may grow; a number that leaves out shards with data is refused.",
)
@click.option(
    "--gateways",
    type=WholeNumber(1, GATEWAYS_MAX),
    default=None,
    envvar="SHARDMQ_UP_GATEWAYS",
    show_envvar=True,
    help="Number of gateway processes; they share the port, and each connection has one of them.  [default: 1 for up "
    "to 3 cores, above that one for every 2 cores, and 2 for each shard at most]",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="SHARDMQ_HOST",
    show_envvar=True,
    help="Address for clients.",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65_535),
    default=5672,
    show_default=True,
    envvar="SHARDMQ_PORT",
    show_envvar=True,
    help="Port for clients; 0 takes a free one.",
)
@DATA_DIR
@MEMORY_WATERMARK
@DISK_FREE_LIMIT
@MESSAGE_SIZE_MAX
@OTLP_ENDPOINT
@DEFINITIONS
@tls_options
@management_options
@host_options
@log_options
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line.")
def up(
    *,
    shards: int,
    gateways: int | None,
    host: str,
    port: int,
    data_dir: Path,
    memory_watermark: int | None,
    disk_free_limit: int | None,
    message_size_max: int,
    otlp_endpoint: str | None,
    definitions: Path | None,
    as_json: bool,
    tls: "TlsOptions | None",
    management: ManagementChoice,
    joining: HostOptions | None,
    log: LogOptions,
) -> int:
    """Run a broker: coordinator, shards and gateways.

    It runs in the foreground, restarts processes that end, and stops cleanly on Ctrl-C or SIGTERM.
    """
    log.begin("up")
    notify.die_with_parent()
    cores = None
    if gateways is None:
        cores = core_count()
        gateways = default_gateways(cores, shards)
    if joining is not None and click.get_current_context().get_parameter_source("host") is ParameterSource.DEFAULT:
        host = EVERYWHERE
    options = BrokerOptions(
        shards,
        gateways,
        host,
        port,
        data_dir,
        memory_watermark,
        disk_free_limit,
        tls,
        message_size_max,
        log,
        cores,
        management,
        definitions,
        otlp_endpoint,
    )
    announce = print_event if as_json else log_notice if log.format == "json" else show_notice
    if joining is None:
        return supervise(options, announce)
    from shardmq.cmd.run.hosts.supervisor import supervise_host

    return supervise_host(options, joining, announce)


def default_gateways(cores: int, shards: int) -> int:
    """How many gateways a broker has where nobody says so.

    Args:
        cores: that the broker may use.
        shards: that it has.
    """
    return max(1, min(cores // CORES_PER_GATEWAY, shards * GATEWAYS_PER_SHARD, GATEWAYS_MAX))


def print_event(notice: Notice) -> None:
    """Print a notice as one line of JSON, with its time and level."""
    when = {"time": timestamp(time.time()), "level": notice.level}
    print_json(when | msgspec.to_builtins(notice))


def log_notice(notice: Notice) -> None:
    """Log a notice."""
    _log.log(logging.getLevelNamesMapping()[notice.level.upper()], "%s", notice.text)


def show_notice(notice: Notice) -> None:
    """Print a welcome when the broker is up; log every other notice."""
    if notice.event == "up":
        print_welcome(notice)
    else:
        log_notice(notice)


def print_welcome(notice: Notice) -> None:
    """Print where the broker is, and what to try next."""
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    assert notice.processes is not None
    name = program()
    where = "another terminal" if Path(name).is_absolute() or "/" not in name else "another terminal, in this directory"
    lines = [] if notice.url == DEFAULT_URL else [f"export SHARDMQ_URL={notice.url}"]
    if notice.port is None:
        lines.append("export SHARDMQ_TLS_CA=authority.pem  # who signed the broker's certificate, if not trusted here")
        if notice.tls_verify:
            lines.append("export SHARDMQ_TLS_CERT=me.pem SHARDMQ_TLS_KEY=me.key  # your client certificate and its key")
    lines += [
        f"{name} queue declare hello",
        f"{name} publish hello 'first message'",
        f"{name} consume hello --count 1",
        f"{name} status",
        f"{name} bench bulk --messages 1000000",
    ]
    facts = Table.grid(padding=(0, 2))
    facts.add_row("url", Text(notice.url or "", style="bold green"))
    if notice.tls_port is not None:
        alone = "" if notice.port is not None else ", the only port for clients"
        facts.add_row("TLS", f"{notice.tls_host} port {notice.tls_port}{alone}")
    if notice.management is not None:
        facts.add_row("management", Text(notice.management))
    facts.add_row("data", notice.data_dir)
    facts.add_row("processes", ", ".join(f"{name} ({pid})" for name, pid in notice.processes.items()))
    if notice.cores is not None:
        count = sum([name.startswith("gateway-") for name in notice.processes])
        facts.add_row("gateways", f"{count}, for {counted(notice.cores, 'core')}; --gateways sets another number")
    console = Console(highlight=False)
    console.print(Panel(facts, title=f"shardmq is ready after {notice.seconds:.1f} s", title_align="left"))
    console.print(f"Try, in {where}:", soft_wrap=True, markup=False)
    console.print("\n".join(f"  {line}" for line in lines), style="bold", soft_wrap=True, markup=False)
    python = f" ({Path(name).with_name('python')})" if "/" in name else ""
    console.print(f"Or in Python{python}:", soft_wrap=True, markup=False)
    console.print(
        "  import shardmq\n"
        f'  with shardmq.connect("{notice.url}") as connection:\n'
        "      channel = connection.channel()\n"
        '      channel.queue_declare("hello", durable=True)\n'
        '      channel.basic_publish("", "hello", b"from Python")\n'
        '      print(channel.basic_get("hello", auto_ack=True).body)',
        style="cyan",
        soft_wrap=True,
        markup=False,
    )
    console.print("Press Ctrl-C to stop the broker.", style="dim")
