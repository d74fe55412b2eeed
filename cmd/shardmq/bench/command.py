"""`shardmq bench` and its modes: options, and figures as a table or JSON."""

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.bench.compare.command import compare
from shardmq.cmd.bench.compare.growth import growth
from shardmq.cmd.bench.compare.spark import spark
from shardmq.cmd.bench.features import features
from shardmq.cmd.bench.footprint.command import footprint
from shardmq.cmd.bench.hosts.command import hosts
from shardmq.cmd.bench.scale.connections import queues_command
from shardmq.cmd.bench.scale.delays import delays
from shardmq.cmd.bench.scaling.command import scaling
from shardmq.cmd.bench.scattered import scattered
from shardmq.cmd.bench.settings import MESSAGES, STAMP, Settings
from shardmq.cmd.bench.streams.command import streams
from shardmq.cmd.bench.watched.command import watched
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, URL, all_of
from shardmq.cmd.terminal.output import print_json
from shardmq.cmd.terminal.tables import print_facts
from shardmq.limits import MESSAGE_BYTES_MAX
from shardmq.version import VERSION

if TYPE_CHECKING:
    from shardmq.cmd.bench.results import Figures
    from shardmq.cmd.bench.trial import Progress


@click.group()
def bench() -> None:
    """Measure a running broker: rates and latency, what features cost, thousands of queues, delays, other brokers."""


def options_of(command: Callable[..., None]) -> Callable[..., None]:
    """The options of the modes."""
    return all_of(command, _OPTIONS)


_OPTIONS: Final = (
    URL,
    click.option("--messages", type=WholeNumber(1), help="Messages in all.  [default: a few seconds' worth]"),
    click.option(
        "--size",
        type=WholeNumber(STAMP.size, MESSAGE_BYTES_MAX // 2),
        default=100,
        show_default=True,
        metavar="BYTES",
        help=f"Size of a body; its first {STAMP.size} bytes are number and time.",
    ),
    click.option(
        "--queues",
        type=WholeNumber(1, 1000),
        default=1,
        show_default=True,
        help="Queues; producers publish to them in turn.",
    ),
    click.option("--producers", type=WholeNumber(1, 256), default=1, show_default=True, help="Producer processes."),
    click.option(
        "--consumers",
        type=WholeNumber(0, 256),
        default=1,
        show_default=True,
        help="Consumer processes; they share the queues, and ack each batch. 0: publishing alone is measured.",
    ),
    click.option(
        "--rate",
        type=Number(1),
        default=1000.0,
        show_default=True,
        help="Messages a second, in mode latency.",
    ),
    click.option("--transient", is_flag=True, help="Transient messages and queues: they do not survive a restart."),
    click.option(
        "--timeout",
        type=Number(1),
        default=300.0,
        show_default=True,
        metavar="SECONDS",
        help="Give up after this time.",
    ),
    click.option(
        "--disk",
        type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
        default=Path(),
        help="Directory on the broker's disk, to measure its fdatasync/s.  [default: the current one]",
    ),
    JSON,
)

MODE_HELP: Final = {
    "bulk": "publish_many in record batches of 500.",
    "pipelined": "One publish() a message, as many unconfirmed as the SDK allows by default.",
    "sync": "Each message is confirmed before the next.",
    "latency": "At a fixed --rate, whether or not the broker keeps up.",
}


def mode_command(mode: str) -> click.Command:
    """The command that measures in one mode."""

    @options_of
    def measure_mode(*, disk: Path, as_json: bool, messages: int | None, **more: Any) -> None:
        if mode == "latency" and not more["consumers"]:
            raise click.BadParameter("there is no latency without a consumer", param_hint="'--consumers'")
        measure(Settings(mode, messages=messages or MESSAGES[mode], **more), disk, as_json)

    text = (
        f"{MODE_HELP[mode]}\n\nProducers and consumers are processes of their own. A message that is lost or "
        "delivered twice is an error."
    )
    return click.command(mode, help=text, short_help=MODE_HELP[mode])(measure_mode)


for _mode in MESSAGES:
    bench.add_command(mode_command(_mode))
bench.add_command(features)
bench.add_command(queues_command)
bench.add_command(delays)
bench.add_command(scattered)
bench.add_command(spark)
bench.add_command(compare)
bench.add_command(growth)
bench.add_command(streams)
bench.add_command(hosts)
bench.add_command(watched)
bench.add_command(scaling)
bench.add_command(footprint)


def measure(settings: Settings, disk: Path, as_json: bool) -> None:
    """Measure once and print the figures."""
    from shardmq.cmd.bench.disk import fdatasync_per_s
    from shardmq.cmd.bench.results import figures
    from shardmq.cmd.bench.trial import run

    machine = {
        "fdatasync_per_s": fdatasync_per_s(disk),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "version": VERSION,
    }
    with progress_bar(settings, as_json) as progress:
        published, notes = run(settings, progress)
    measured = figures(settings, published, notes, machine)
    if as_json:
        print_json(measured)
    else:
        print_table(measured)


@contextlib.contextmanager
def progress_bar(settings: Settings, as_json: bool) -> "Iterator[Progress]":
    """A progress bar on stderr."""
    if as_json:
        yield lambda _published, _consumed: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = [bar.add_task(name, total=settings.messages) for name in ("published", "consumed")]

        def show(published: int, consumed: int) -> None:
            for task, count in zip(tasks, (published, consumed), strict=True):
                bar.update(task, completed=count)

        yield show


def print_table(measured: "Figures") -> None:
    """Print the figures for people."""
    settings, latency = measured.settings, measured.latency_ms
    facts = {"published, confirmed": per_second(measured.publish_msgs_per_s)}
    if latency is not None:
        facts |= {
            "consumed, acked": per_second(measured.consume_msgs_per_s),
            "end to end": per_second(measured.end_to_end_msgs_per_s),
            "latency p50 / p99 / max": f"{latency.p50:.2f} / {latency.p99:.2f} / {latency.max:.2f} ms",
        }
    kind = "transient" if settings["transient"] else "persistent"
    print_facts(
        f"{settings['mode']}: {settings['messages']:,} messages of {settings['size']} bytes, {kind}",
        {**facts, "this disk": f"{settings['fdatasync_per_s']:,} fdatasync/s"},
    )


def per_second(messages: float | None) -> str:
    """A rate for people."""
    return "" if messages is None else f"{messages:,.0f} msgs/s"
