"""A job's progress and summary on the terminal: stderr while it works, stdout at the end."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import click

from shardmq.cmd.terminal.rows import names, numbers
from shardmq.cmd.terminal.tables import Table, print_facts
from shardmq.cmd.terminal.values import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.progress import Progress

    from shardmq.spark.jobs.outcome import Summary

LOOK_SECONDS: Final = 0.25
"""How often Spark is asked for its progress, in seconds."""


class Watch(Protocol):
    """Shows what a job does while it works."""

    def say(self, sentence: str) -> None:
        """Show a sentence."""

    def progress(self, done: int, total: int) -> None:
        """Show how many rows of how many are done."""

    def look_at(self, spark: "SparkSession") -> None:
        """Show the tasks of a session."""


class Silent:
    """Shows nothing: for machines."""

    def say(self, sentence: str) -> None:
        """Do nothing."""

    def progress(self, done: int, total: int) -> None:
        """Do nothing."""

    def look_at(self, spark: "SparkSession") -> None:
        """Do nothing."""


class Plain(Silent):
    """Shows sentences alone: for a file."""

    def say(self, sentence: str) -> None:
        """Show a sentence as a line on stderr."""
        click.echo(sentence, err=True)


class Live(Silent):
    """Shows a moving line: the step, how many of Spark's tasks or of the rows are done, and the time."""

    def __init__(self, bar: "Progress", doing: str) -> None:
        self._bar = bar
        self._doing = doing
        self._task = bar.add_task("starting Spark", total=None)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._counts_rows = False

    def say(self, sentence: str) -> None:
        """Show a sentence above the line."""
        self._bar.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def progress(self, done: int, total: int) -> None:
        """Show rows from now on, in place of tasks."""
        self._counts_rows = True
        self._bar.update(self._task, completed=done, total=total, description=f"{self._doing}, rows")

    def look_at(self, spark: "SparkSession") -> None:
        """Show the tasks of a session until `close`."""
        self._bar.update(self._task, description=self._doing)
        self._thread = threading.Thread(target=self._look, args=(spark,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop asking Spark."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _look(self, spark: "SparkSession") -> None:
        tracker = spark.sparkContext.statusTracker()
        while not self._over.wait(LOOK_SECONDS):
            stages = [
                info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None
            ]
            if stages and not self._counts_rows:
                done, total = sum(info.numCompletedTasks for info in stages), sum(info.numTasks for info in stages)
                self._bar.update(self._task, completed=done, total=total, description=f"{self._doing}, tasks")


@contextlib.contextmanager
def watch(doing: str, as_json: bool) -> Iterator[Watch]:
    """Make what shows progress: a moving line on a terminal, sentences elsewhere.

    Args:
        doing: what the job does, such as "publishing".
        as_json: show nothing.
    """
    if as_json:
        yield Silent()
        return
    if not sys.stderr.isatty():
        yield Plain()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        live = Live(bar, doing)
        try:
            yield live
        finally:
            live.close()


@contextlib.contextmanager
def spark_for(
    watching: Watch, job: str, master: str | None, settings: dict[str, str], log: Path | None
) -> Iterator["SparkSession"]:
    """Start a session for a command, and show its tasks.

    Args:
        watching: shows them.
        job: the job's name.
        master: the value of --master.
        settings: Spark's settings.
        log: a file for Spark's log; None to keep none.
    """
    from shardmq.cmd.spark.session import session

    with session(f"shardmq {job}", master, settings, log) as spark:
        watching.look_at(spark)
        try:
            yield spark
        finally:
            if isinstance(watching, Live):
                watching.close()


def print_summary(summary: "Summary", title: str, more: Callable[[], None] | None = None) -> None:
    """Print a job's summary for people.

    Args:
        summary: the summary.
        title: the line above the table.
        more: prints what stands before the summary.
    """
    from shardmq.cmd.terminal.values import size

    if more is not None:
        more()
    click.echo(title)
    facts = {
        "rows": f"{summary.rows:,}",
        "messages": f"{summary.messages:,}",
        "bytes of bodies": size(summary.bytes),
        "seconds": f"{summary.seconds:.1f}",
        "rows a second": f"{summary.rows_per_s:,.0f}",
    }
    print_facts("", facts | ({"transaction": summary.transaction} if summary.transaction else {}))
    for note in summary.notes:
        click.echo(note)
    if summary.queues:
        rows = [{"queue": queue, "ready now": messages} for queue, messages in summary.queues.items()]
        columns = (*names("queue"), *numbers("ready now"))
        Table("", columns, rows, counted(len(summary.queues), "queue")).print()
