"""Brokers for the tests of a file: they run while those do, and are gone with all they have kept when they are over."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent, NotStarted
from shardmq.cmd.run.broker import Broker


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
    """Skip a test for lack of a peer, where that is not installed; one that does not start is a fault."""
    if isinstance(reason, NotStarted):
        raise reason
    pytest.skip(str(reason))
