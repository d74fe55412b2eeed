"""A Spark session for one command: its master, its Python and its log, and the options for them."""

import contextlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from shardmq.cmd.terminal.options import Command, all_of, named_texts
from shardmq.errors import StartupRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
SUBMITTED: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS")
"""Environment names; where one is set, somebody has chosen Spark's master already."""

QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}
"""Settings of a Spark that runs on this machine alone."""

_TELLING: Final = re.compile(r"error|exception|unsupported|cannot|could not", re.IGNORECASE)
"""In the line of Java's output that says why it did not start."""

_OPTIONS: Final = (
    click.option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs, as local[4], spark://host:7077 or yarn.  [default: what PYSPARK_SUBMIT_ARGS or "
        f"spark-submit say, else {LOCAL}]",
    ),
    click.option(
        "--conf",
        "settings",
        callback=named_texts,
        multiple=True,
        metavar="NAME=VALUE",
        help="One of Spark's settings, as spark.driver.memory=4g.",
    ),
    click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Keep Spark's log in this file."),
)


def spark_options(command: Command) -> Command:
    """Add the options of a command that starts Spark; `session` takes them."""
    return all_of(command, _OPTIONS)


def check_installed() -> None:
    """Check that Spark and Java are installed.

    Raises:
        StartupRefused: one of them is not.
    """
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise StartupRefused(
            f"{' with '.join(missing)} is not installed: pip install 'shardmq[spark]', "
            "or in a clone: .venv/bin/pip install -e '.[spark]'"
        )
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=str(Path(home) / "bin") if home else None) is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is no java on the PATH"
        raise StartupRefused(f"Spark needs Java 17 or newer, and {where}: install one, as openjdk-17-jre-headless")


def is_local(master: str | None) -> bool:
    """Whether Spark's executors run on this machine, with its files and its Python."""
    return master is not None and re.match(r"local(\[|-cluster\[|$)", master) is not None


def master_of(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The master to ask for; None where whoever started this process has chosen it."""
    if given is not None:
        return given
    return None if any(environment.get(name) for name in SUBMITTED) else LOCAL


@contextlib.contextmanager
def session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator["SparkSession"]:
    """Start Spark with `format("shardmq")`, and stop it at the end of the block.

    Args:
        name: the job's name on Spark's pages.
        master: the value of --master.
        settings: Spark's settings.
        log: a file for Spark's log; None to keep none.

    Raises:
        StartupRefused: Spark is not installed, or does not start.
    """
    check_installed()
    master = master_of(master)
    if master is not None and is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with _log_file(log) as (file, place):
        spark = _started(name, master, dict(settings or {}), file, place)
        try:
            from shardmq.spark import register

            register(spark)
            yield spark
        finally:
            spark.stop()


def _started(name: str, master: str | None, settings: dict[str, str], log: int, place: Path) -> "SparkSession":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # A builder of our own: SparkSession.builder is shared and remembers settings.
    builder = SparkSession.Builder().appName(name)
    if master is not None:
        builder = builder.master(master)
    usual = {**QUIET, **(HERE if is_local(master) else {})}
    for key, value in {**usual, **settings}.items():
        builder = builder.config(key, value)
    try:
        with _stderr_to(log):  # Java and Spark's Python workers inherit it
            return builder.getOrCreate()
    except (PySparkException, OSError) as fault:
        raise StartupRefused(f"Spark does not start: {_last_words(place) or fault}") from fault
    except Exception as fault:
        from py4j.protocol import Py4JError

        if not isinstance(fault, Py4JError):
            raise
        from shardmq.spark.jobs.outcome import first_sentence

        raise StartupRefused(f"Spark does not start: {first_sentence(str(fault))}") from fault


@contextlib.contextmanager
def _log_file(kept: Path | None) -> Iterator[tuple[int, Path]]:
    """Open a file for Spark's log: its descriptor and path. It is removed after the block, unless it is to be kept."""
    if kept is not None:
        with kept.open("ab") as file:
            yield file.fileno(), kept
        return
    with tempfile.NamedTemporaryFile(prefix="shardmq-spark-", suffix=".log") as temporary:
        yield temporary.fileno(), Path(temporary.name)


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """Send stderr to a descriptor, that of processes started in the block included."""
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        os.dup2(descriptor, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _last_words(log: Path) -> str:
    """The line of a log that says why Java did not start, or its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    return (telling or lines or [""])[0 if telling else -1]
