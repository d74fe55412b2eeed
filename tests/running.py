"""Brokers for the tests of a file: they run while those do, and are gone with all they have kept when they are over."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent, NotStarted
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

TRYING_SECONDS: Final = 60.0


class NotAllowed(Absent):
    """What this machine does not allow; no package brings it."""


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start a broker; stop it at the end, print its last words for a test that failed, and delete its folder."""
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())
        shutil.rmtree(broker.data_dir)


def without(reason: Absent) -> NoReturn:
    """Skip a test for lack of a peer, where that is not installed; one that does not start is a fault.

    So is one that `make test` fetches, where SHARDMQ_PEERS says that all are required.
    """
    is_required = os.environ.get("SHARDMQ_PEERS") == "required" and not isinstance(reason, NotAllowed)
    if isinstance(reason, NotStarted) or is_required:
        raise reason
    pytest.skip(str(reason))


def backed_up(url: str, copy: Path, *options: str) -> str:
    """Back a broker up as operators do: a broker that was too busy to pause is asked again, as the error says.

    Returns:
        What was printed.
    """
    deadline = time.monotonic() + TRYING_SECONDS
    while True:
        words = command("backup", str(copy), "--url", url, *options)
        done = subprocess.run(words, env=environment(), capture_output=True, check=False, text=True)
        if "did not pause" not in done.stderr or time.monotonic() > deadline:
            assert done.returncode == 0, done.stderr
            return done.stdout
        shutil.rmtree(copy)
