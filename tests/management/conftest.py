"""A broker with a management process, one for all tests of a file."""

import shutil
from collections.abc import Iterator

import pytest

from shardmq.cmd.run.broker import Broker

from .browser import Browser


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two shards and a management process; tests must not kill it."""
    broker = Broker(tmp_path_factory.mktemp("managed") / "data", shards=2, management=True)
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())
        shutil.rmtree(broker.data_dir)


@pytest.fixture
def admin(managed: Broker) -> Iterator[Browser]:
    """Asks as guest, the administrator."""
    with Browser(managed.management_url) as browser:
        yield browser
