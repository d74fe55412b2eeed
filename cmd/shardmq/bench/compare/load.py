"""What `bench compare` loads brokers with: a C program of ours, compiled when it is needed, and pika."""

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
"""In what a compiler says when librabbitmq, or what it takes to compile with it, is not there."""


class Rates(msgspec.Struct, frozen=True):
    """What one run of a load reaches, in messages a second; every message was checked.

    Attributes:
        messages: in all.
        publish_msgs_per_s: first publish to last confirm.
        consume_msgs_per_s: first to last message in a consumer's hands; 0 where nothing was consumed.
        end_to_end_msgs_per_s: from the start until both are done; 0 where nothing was consumed.
    """

    messages: int
    publish_msgs_per_s: float
    consume_msgs_per_s: float = 0.0
    end_to_end_msgs_per_s: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """One kind of load.

    Attributes:
        mode: both, seq or each, as the C program has them; confirmed or unconfirmed are pika's.
        window: messages unconfirmed at most.
        size: bytes of a body.
        connections: of mode each.
    """

    mode: str
    window: int = 1000
    size: int = 100
    connections: int = 1

    @property
    def is_pikas(self) -> bool:
        """Whether a Python program makes it."""
        return self.mode in compare_pika.MODES

    def arguments(self, port: int, messages: int) -> list[str]:
        """For the program."""
        queue = f"bench-compare-{secrets.token_hex(4)}"
        if self.is_pikas:
            return [self.mode, str(port), queue, str(messages), str(self.size)]
        numbers = (messages, self.size, self.window)
        return ["127.0.0.1", str(port), queue, *map(str, numbers), self.mode, str(self.connections)]


def pika_program() -> list[str]:
    """The command that loads with pika.

    Raises:
        Absent: it is not installed.
    """
    if importlib.util.find_spec("pika") is None:
        raise Absent("pika is not installed: pip install 'shardmq[bench]'")
    return [sys.executable, "-P", "-m", compare_pika.__name__]


def compiled_program(folder: Path) -> list[str]:
    """Compile the C program; returns the command that runs it.

    Args:
        folder: where the program is put.

    Raises:
        Absent: what it takes is not installed; the text says what, and how to get it.
        ShardmqError: the compiler does not like it.
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
    """Load the broker on this port once.

    Raises:
        Timeout: it takes too long.
        ShardmqError: a message was lost, doubled, refused, changed, out of order, or the connection ended.
    """
    command = [*program, *load.arguments(port, messages)]
    try:
        # A process group of its own: Ctrl-C is for us, who end it.
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment(), process_group=0, check=False
        )
    except subprocess.TimeoutExpired:
        raise Timeout(f"{messages:,} messages are not through after {timeout:.0f} s; see --timeout") from None
    if done.returncode != 0:
        raise ShardmqError(last_line(done.stderr) or f"the load ended with code {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Rates)


def last_line(text: str) -> str:
    """Of what a program said."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
