"""A broker for the tests of a file: it runs while they do, and is gone with all it has kept when they are over."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

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
