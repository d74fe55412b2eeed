"""The programs that make the load of `bench compare`: a C program, compiled when it is needed, and pika."""

import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from shardmq.cmd.bench.compare import pika_program as compare_pika
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run.invocation import environment
from shardmq.errors import ShardmqError, Timeout

SOURCE: Final = Path(__file__).with_name("amqpload.c")
COMPILERS: Final = ("cc", "gcc", "clang")

MISSING_LIBRARY: Final = re.compile(r"amqp(_\w+)?\.h|-lrabbitmq")
"""Found in the errors of a compiler when librabbitmq or its headers are missing."""


class Rates(msgspec.Struct, frozen=True):
    """The rates of one measurement, in messages a second; every message was checked.

    Attributes:
        messages: in all.
        publish_msgs_per_s: first publish to last confirm.
        consume_msgs_per_s: first to last delivery; 0 where nothing was consumed.
        end_to_end_msgs_per_s: from the start until both are done; 0 where nothing was consumed.
    """

    messages: int
    publish_msgs_per_s: float
    consume_msgs_per_s: float = 0.0
    end_to_end_msgs_per_s: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """One kind of load.

    Attributes:
        mode: both, seq or each for the C program; confirmed or unconfirmed for pika.
        window: most unconfirmed messages.
        size: bytes of a body.
        connections: number of connections, in mode each.
    """

    mode: str
    window: int = 1000
    size: int = 100
    connections: int = 1

    @property
    def is_pikas(self) -> bool:
        """Whether the pika program makes it."""
        return self.mode in compare_pika.MODES

    def arguments(self, port: int, messages: int) -> list[str]:
        """The arguments of the program."""
        queue = f"bench-compare-{secrets.token_hex(4)}"
        if self.is_pikas:
            return [self.mode, str(port), queue, str(messages), str(self.size)]
        numbers = (messages, self.size, self.window)
        return ["127.0.0.1", str(port), queue, *map(str, numbers), self.mode, str(self.connections)]


def pika_program() -> list[str]:
    """The command of the pika program.

    Raises:
        Absent: pika is not installed.
    """
    if importlib.util.find_spec("pika") is None:
        raise Absent("pika is not installed: pip install 'shardmq[bench]'")
    return [sys.executable, "-P", "-m", compare_pika.__name__]


def compiled_program(folder: Path) -> list[str]:
    """Compile the C program; returns the command that runs it.

    Args:
        folder: folder for the program.

    Raises:
        Absent: the compiler or the library is not installed; the text says how to install it.
        ShardmqError: the program cannot be compiled.
    """
    named = shlex.split(os.environ.get("CC", ""))
    compiler = named or [path for path in map(shutil.which, COMPILERS) if path][:1]
    if not compiler or shutil.which(compiler[0]) is None:
        raise Absent(f"{compiler[0] if named else 'a C compiler'} is not installed: apt-get install gcc")
    program = folder / "amqpload"
    command = [*compiler, "-O2", "-o", str(program), str(SOURCE), "-lrabbitmq", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode == 0:
        return [str(program)]
    if MISSING_LIBRARY.search(done.stderr):
        raise Absent("librabbitmq is not installed: apt-get install librabbitmq-dev (rabbitmq-c elsewhere)")
    raise ShardmqError(f"{shlex.join(compiler)} cannot compile {SOURCE.name}: {last_line(done.stderr)}")


def run_load(program: Sequence[str], load: Load, port: int, messages: int, timeout: float) -> Rates:
    """Put the load on the broker at this port once.

    Raises:
        Timeout: it takes too long.
        ShardmqError: a message was lost, doubled, refused, changed, out of order, or the connection ended.
    """
    command = [*program, *load.arguments(port, messages)]
    try:
        # It has its own process group: Ctrl-C reaches this process alone, which then ends it.
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment(), process_group=0, check=False
        )
    except subprocess.TimeoutExpired:
        raise Timeout(f"{messages:,} messages are not through after {timeout:.0f} s; see --timeout") from None
    if done.returncode != 0:
        raise ShardmqError(last_line(done.stderr) or f"the load ended with code {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Rates)


def last_line(text: str) -> str:
    """The last line of a text, or nothing."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
