"""Brokers for tests: real processes on real sockets, gone when the test is."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from shardmq.cmd.broker import Broker

# How long an example takes says more of what else the machine does (brokers, other workers) than of our code.
settings.register_profile("shardmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardmq")

# Java is not worth warming up for tests: half the processor time goes into compiling what soon ends.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

StartBroker = Callable[..., Broker]

FIRST = ["test_cluster", "test_pipeline", "test_faults", "test_write", "test_read", "test_drain", "test_spark_guide"]
"""Files in tests/spark that take longest, in this order: begun last, they would be what all wait for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, for several workers to share them (`--no-loadscope-reorder` leaves the order as it is)."""
    places = {Path(__file__).parent / "spark" / f"{name}.py": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with four shards, one for all tests of a file, which must not kill it."""
    broker = Broker(tmp_path_factory.mktemp("broker") / "data")
    try:
        yield broker.start()
    finally:
        broker.close()
        print(broker.last_words())


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts brokers for one test, which may do to them what it likes: `start_broker(shards=2, gateways=2)`."""
    brokers: list[Broker] = []

    def start(
        *,
        shards: int = 4,
        gateways: int = 1,
        data_dir: Path | None = None,
        launch_only: bool = False,
        options: Sequence[str] = (),
    ) -> Broker:
        folder = data_dir or tmp_path / f"broker-{len(brokers)}"
        broker = Broker(folder, shards=shards, gateways=gateways, options=options)
        brokers.append(broker)
        if launch_only:
            broker.launch()
        else:
            broker.start()
        return broker

    try:
        yield start
    finally:
        for broker in brokers:
            broker.close()
            print(broker.last_words())
