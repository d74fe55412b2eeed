"""The programs that make the load of `bench compare`: a C program, compiled when it is needed, pika, and the SDK."""

import importlib.util
import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from shardmq.cmd.bench.compare import backlog_program as compare_backlog
from shardmq.cmd.bench.compare import pika_program as compare_pika
from shardmq.cmd.bench.compare.amqpload import SOURCES
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run import invocation
from shardmq.errors import ShardmqError, Timeout

COMPILERS: Final = ("cc", "gcc", "clang")

MISSING_LIBRARY: Final = re.compile(r"amqp(_\w+)?\.h|-lrabbitmq")
"""Found in the errors of a compiler when librabbitmq or its headers are missing."""

Figures = dict[str, float]
"""What was measured, by name; "seconds" is the time that it took, by which the next number of messages is found."""


class Contestant(msgspec.Struct, frozen=True):
    """A broker that is measured.

    Attributes:
        name: for people.
        port: of AMQP.
        pids: its processes.
        url: for the SDK; None for brokers that do not speak the native protocol.
        folder: on the disk that it writes to.
    """

    name: str
    port: int
    pids: tuple[int, ...] = ()
    url: str | None = None
    folder: str = tempfile.gettempdir()


class Load(msgspec.Struct, frozen=True):
    """One kind of load.

    Attributes:
        program: the program that makes it, one of `PROGRAMS`.
        mode: the program's mode.
        first: messages of the first measurement; the numbers of the others follow from the time that it took.
        options: of the program, by name.
        least: least number of messages.
        is_fixed: whether every measurement has as many messages as the first.
    """

    program: str
    mode: str
    first: int
    options: dict[str, int | str] = {}
    least: int = 1
    is_fixed: bool = False


class Program(msgspec.Struct, frozen=True):
    """A program that makes loads.

    Attributes:
        command: makes the command that runs it, given a folder for what is compiled; raises Absent, which says what to
            install.
        arguments: makes its arguments from the load, the broker and the number of messages.
        figures: makes the figures from the JSON that it prints.
    """

    command: Callable[[Path], list[str]]
    arguments: Callable[[Load, Contestant, int], list[str]]
    figures: Callable[[dict[str, Any]], Figures]


def numbers(said: dict[str, Any]) -> Figures:
    """The figures of a program that prints nothing else."""
    return {name: float(value) for name, value in said.items()}


def compiler() -> list[str]:
    """The command of a C compiler.

    Raises:
        Absent: none is installed.
    """
    named = shlex.split(os.environ.get("CC", ""))
    found = named or [path for path in map(shutil.which, COMPILERS) if path][:1]
    if not found or shutil.which(found[0]) is None:
        raise Absent(f"{found[0] if named else 'a C compiler'} is not installed: apt-get install gcc")
    return found


def compiled_program(folder: Path) -> list[str]:
    """Compile the C program; returns the command that runs it.

    Args:
        folder: folder for the program.

    Raises:
        Absent: the compiler or the library is not installed; the text says how to install it.
        ShardmqError: the program cannot be compiled.
    """
    program = folder / "amqpload"
    command = [*compiler(), "-O2", "-o", str(program), *map(str, SOURCES), "-lrabbitmq", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode == 0:
        return [str(program)]
    if MISSING_LIBRARY.search(done.stderr):
        raise Absent("librabbitmq is not installed: apt-get install librabbitmq-dev (rabbitmq-c elsewhere)")
    raise ShardmqError(f"{shlex.join(compiler())} cannot compile {program.name}: {last_line(done.stderr)}")


def amqp_arguments(load: Load, broker: Contestant, messages: int) -> list[str]:
    """The arguments of the C program."""
    options = {**load.options, "messages": messages, "pids": ",".join(map(str, broker.pids))}
    options["disk"] = disk_counters(broker.folder)
    words = [f"{name}={value}" for name, value in options.items()]
    return ["127.0.0.1", str(broker.port), new_name(), load.mode, *words]


def disk_counters(folder: str) -> str:
    """The file with the counters of the disk that a folder is on; "" where the system has none."""
    device = os.stat(folder).st_dev
    counters = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"
    return counters if os.path.exists(counters) else ""


def need_pika() -> None:
    """Check that there is pika.

    Raises:
        Absent: it is not installed.
    """
    if importlib.util.find_spec("pika") is None:
        raise Absent("pika is not installed: pip install 'shardmq[bench]'")


def pika_program(_folder: Path) -> list[str]:
    """The command of the pika program.

    Raises:
        Absent: pika is not installed.
    """
    need_pika()
    return [sys.executable, "-P", "-m", compare_pika.__name__]


def pika_arguments(load: Load, broker: Contestant, messages: int) -> list[str]:
    """The arguments of the pika program."""
    return [load.mode, str(broker.port), new_name(), str(messages), "100"]


def pika_figures(said: dict[str, Any]) -> Figures:
    """The figures of the pika program."""
    return {**numbers(said), "seconds": said["messages"] / said["publish_msgs_per_s"]}


def own_program(_folder: Path) -> list[str]:
    """The command of `shardmq`."""
    return invocation.command()


def backlog_program(_folder: Path) -> list[str]:
    """The command of the program that measures a backlog."""
    return [sys.executable, "-P", "-m", compare_backlog.__name__]


def backlog_arguments(load: Load, broker: Contestant, messages: int) -> list[str]:
    """The arguments of the program that measures a backlog."""
    return [str(messages), str(load.options["shards"]), broker.folder]


def spark_program(_folder: Path) -> list[str]:
    """The command of `shardmq`, where Spark is installed.

    Raises:
        Absent: it is not.
    """
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        raise Absent(
            "Spark or Java is not installed: pip install 'shardmq[spark]', apt-get install default-jre-headless"
        )
    return invocation.command()


def own_arguments(load: Load, broker: Contestant, messages: int) -> list[str]:
    """The arguments of `shardmq bench`."""
    assert broker.url is not None
    count = "--rows" if load.mode == "spark" else "--messages"
    options = {"url": broker.url, **load.options}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    words += ["--no-rabbitmq", "--no-topic"] if load.mode == "spark" else []
    return ["bench", load.mode, count, str(messages), *words, "--json"]


def sdk_figures(said: dict[str, Any]) -> Figures:
    """The figures of `shardmq bench bulk` and its like."""
    rates = {name: float(value) for name, value in said.items() if name.endswith("_msgs_per_s") and value is not None}
    slowest = rates.get("end_to_end_msgs_per_s", rates["publish_msgs_per_s"])
    return {**rates, "seconds": said["settings"]["messages"] / slowest}


def feature_figures(said: dict[str, Any]) -> Figures:
    """The figures of `shardmq bench features`, of which one was measured once, between two plain measurements."""
    (cost,) = said["features"]
    messages = said["settings"]["messages"]
    seconds = messages / cost["end_to_end_msgs_per_s"] + 2 * messages / cost["plain_msgs_per_s"]
    return {
        "end_to_end_msgs_per_s": cost["end_to_end_msgs_per_s"],
        "share_of_plain": cost["ratio"],
        "seconds": seconds,
    }


def spark_figures(said: dict[str, Any]) -> Figures:
    """The figures of `shardmq bench spark`."""
    rates = {outcome["sink"]: outcome["rows_per_s"] for outcome in said["spark"]}
    exactly = rates["shardmq, exactly-once"]
    return {"exactly_once_rows_per_s": exactly, "seconds": said["settings"]["rows"] / exactly}


PROGRAMS: Final = {
    "amqp": Program(compiled_program, amqp_arguments, numbers),
    "pika": Program(pika_program, pika_arguments, pika_figures),
    "sdk": Program(own_program, own_arguments, sdk_figures),
    "features": Program(own_program, own_arguments, feature_figures),
    "backlog": Program(backlog_program, backlog_arguments, numbers),
    "spark": Program(spark_program, own_arguments, spark_figures),
}
"""All programs, by name."""


def new_name() -> str:
    """A name that no queue has yet."""
    return f"bench-compare-{secrets.token_hex(4)}"


def run_load(command: Sequence[str], load: Load, broker: Contestant, messages: int, timeout: float) -> Figures:
    """Put the load on a broker once.

    Raises:
        Timeout: it takes too long.
        ShardmqError: a message was lost, doubled, refused, changed, out of order, or the connection ended.
    """
    program = PROGRAMS[load.program]
    return program.figures(run_words([*command, *program.arguments(load, broker, messages)], messages, timeout))


def run_words(words: Sequence[str], messages: int, timeout: float) -> dict[str, Any]:
    """Run a program that puts load on a broker; returns what its last line says in JSON.

    Args:
        words: its command.
        messages: how many it has.
        timeout: seconds after which it is given up.

    Raises:
        Timeout: it takes too long.
        ShardmqError: a message was lost, doubled, refused, changed, out of order, or the connection ended.
    """
    # It has its own process group: Ctrl-C reaches this process alone, which then ends it.
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=invocation.environment(),
        process_group=0,
    ) as process:
        try:
            said, failure = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Timeout(f"{messages:,} messages are not through after {timeout:.0f} s; see --timeout") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
    if process.returncode != 0:
        raise ShardmqError(last_line(failure) or f"the load ended with code {process.returncode}")
    found: dict[str, Any] = msgspec.json.decode(last_line(said))
    return found


def last_line(text: str) -> str:
    """The last line of a text, or nothing."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
