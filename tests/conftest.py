"""Brokers for tests: real processes on real sockets, gone when the test is."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from shardmq.cmd.broker import Broker

# How long an example takes says more of what else the machine does (brokers, other workers) than of our code.
settings.register_profile("shardmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardmq")

StartBroker = Callable[..., Broker]

FIRST = ("spark/test_cluster.py", "spark/test_pipeline.py", "spark/test_faults.py")
"""The files that take longest, in this order: begun last, they would be what all wait for."""

SESSIONS = {
    "spark/test_pipeline.py": "a", "spark/test_read.py": "a", "spark/test_drain.py": "a",
    "spark/test_faults.py": "b", "spark/test_write.py": "b", "spark/test_spark_guide.py": "b",
}  # fmt: skip
"""Files that need a Spark session, by the one they share: it takes ten seconds to start, and is slow for ten more."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several workers share the tests (`--dist loadgroup`), a file is one worker's, and so is a Spark session."""
    root = Path(__file__).parent
    files = {item: item.path.relative_to(root).as_posix() for item in items}
    for item, file in files.items():
        item.add_marker(pytest.mark.xdist_group(SESSIONS.get(file, file)))
    places = {file: place for place, file in enumerate([*FIRST, *SESSIONS])}
    items.sort(key=lambda item: places.get(files[item], len(places)))


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
