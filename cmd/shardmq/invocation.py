"""How one of our commands is started as a process of its own."""

import os
import sys


def command(*arguments: str) -> list[str]:
    """The command line of `shardmq arguments…`, run by this interpreter.

    -P keeps the working directory off the import path: a user's `queue.py` lying there must not end up in a broker.
    """
    return [sys.executable, "-P", "-m", "shardmq.cmd.main", *arguments]


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with its import path, so that the child runs the code that runs here."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}
