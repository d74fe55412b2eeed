"""A broker with a management process, one for all tests of a file; and clients that others wrote."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser
from tests.running import running

PEERS: Final = Path(sys.prefix) / "peers"
"""What tests/amqp/peers.py has fetched."""


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with two shards and a management process; tests must not kill it."""
    with running(Broker(tmp_path_factory.mktemp("managed") / "data", shards=2, management=True)) as broker:
        yield broker


@pytest.fixture
def admin(managed: Broker) -> Iterator[Browser]:
    """Asks as guest, the administrator."""
    with Browser(managed.management_url) as browser:
        yield browser


def peer(pattern: str) -> Path:
    """A file that peers.py has fetched; the test is skipped where it has not."""
    found = sorted(PEERS.glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} in {PEERS}; `make .venv/installed-peers` fetches it")
    return found[0]
