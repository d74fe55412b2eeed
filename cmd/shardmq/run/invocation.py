"""Starting commands of shardmq as processes, and the name under which people start them."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def command(*arguments: str) -> list[str]:
    """The command line of `shardmq arguments…`, run by this interpreter.

    -P keeps the working directory off the import path: a user's `queue.py` lying there must not end up in a broker.
    """
    return [sys.executable, "-P", "-m", "shardmq.cmd.main", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with its import path, so that the child runs the code that runs here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def spawn(
    arguments: tuple[str, ...], variables: Mapping[str, str], stdout: int, stderr: int | None = None
) -> "subprocess.Popen[bytes]":
    """Start `shardmq arguments…` as a process of its own, in a process group of its own.

    Ctrl-C goes to the terminal's whole group; the order in which a broker's processes stop is ours.

    Args:
        arguments: of the command.
        variables: added to this process's environment.
        stdout: a file descriptor, or subprocess.PIPE.
        stderr: a file descriptor; None for ours.
    """
    return subprocess.Popen(
        command(*arguments),
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        process_group=0,
    )


def program() -> str:
    """What people type for `shardmq` where this process was started: its path, unless the shell finds it by name."""
    path = Path(sys.argv[0])
    found = shutil.which("shardmq")
    if path.name != "shardmq" or (found is not None and path.exists() and path.samefile(found)):
        return "shardmq"
    return shlex.quote(str(path))
