"""Brokers for tests: real processes on real sockets, gone when the test is."""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.cmd.run import invocation
from shardmq.cmd.run.broker import Broker

from .hosts.members import Etcd
from .running import running, without
from .spark.archive import QUICK_JAVA, java_options
from .warm import warm_process

# How long an example takes says more of what else the machine does (brokers, other workers) than of our code.
settings.register_profile("shardmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shardmq")

PEERS = Path(sys.prefix) / "peers" / "servers"
"""What tests/amqp/peers.py has fetched where the machine lacks it: servers for the PATH, a library to compile with."""

for library in PEERS.glob("usr/lib/*-linux-gnu/librabbitmq.so"):
    for name, place in {
        "PATH": PEERS / "programs",
        "CPATH": PEERS / "usr" / "include",
        "LIBRARY_PATH": library.parent,
        "LD_RUN_PATH": library.parent,
    }.items():
        before = os.environ.get(name)
        os.environ[name] = os.pathsep.join([*([before] if before else []), str(place)])

gc.disable()  # until all is collected, hardly anything of which is garbage

# A broker starts in half the time where its processes find compiled code. In the tree it does no harm: git ignores it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options())
os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK_JAVA)  # it only puts the command line together
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each of Spark's Pythons starts threads for nothing

StartBroker = Callable[..., Broker]

invocation.spawn = warm_process.spawn
atexit.register(warm_process.close)

SESSIONS = {
    **dict.fromkeys(
        [f"tests/spark/jobs/test_{job}.py" for job in ("publish", "export", "replay", "dead_letters")], "first"
    ),
    **dict.fromkeys(
        [f"tests/spark/write/test_{what}.py" for what in ("faults", "gateways", "stream", "writer")], "first"
    ),
    "tests/spark/read/test_reader.py": "first",
    "tests/spark/read/test_drain.py": "first",
    "tests/spark/test_documents.py": "first",
    "tests/spark/test_demo.py": "first",
    **dict.fromkeys([f"tests/spark/topics/test_{what}.py" for what in ("batch", "partitions", "stream")], "second"),
    **dict.fromkeys([f"tests/spark/jobs/topics/test_{job}.py" for job in ("export", "replay")], "second"),
    "tests/spark/test_source.py": "second",
    "tests/cmd/test_spark.py": "second",  # commands stop Spark, but not Java: the last one
}
"""Files that share a session, in two parts about equal: to start one and to get it warm takes longer than all tests of
most files take then."""

FIRST = [
    *SESSIONS,
    "tests/cmd/bench/test_compare.py",
    "tests/management/test_page.py",
    "tests/spark/test_cluster.py",
    "tests/docs/test_documents.py",
    "tests/hosts/test_broker.py",
    "tests/hosts/test_encryption.py",
    "tests/hosts/test_spark.py",
    "tests/cmd/bench/test_streams.py",
    "tests/faults/test_sabotage.py",
    "tests/deploy/test_systemd_hosts.py",
    "tests/install/test_wheel.py",
    "tests/spark/topics/test_exactly_once.py",
    "tests/cmd/run/hosts/test_growth.py",
    "tests/hosts/test_upgrades.py",
    "tests/hosts/clients/test_clients.py",
    "tests/management/findings/test_evaluate.py",
    "tests/faults/test_transactions.py",
    "tests/gateway/authentication/test_authenticator.py",
    "tests/amqp/test_suites.py",
    "tests/faults/test_tx_kills.py",
    "tests/replication/test_simulator.py",
    "tests/gateway/amqp/test_heartbeats.py",
    "tests/shards/storage/test_flips.py",
    "tests/gateway/amqp/test_hostile.py",
    "tests/management/description/test_document.py",
    "tests/spark/test_connect.py",
    "tests/management/findings/test_provoked.py",
    "tests/amqp/test_celery.py",
    "tests/gateway/session/test_unasked_consumers.py",
    "tests/e2e/test_small_disk.py",
    "tests/test_flights.py",
    "tests/spark/write/test_publisher.py",
    "tests/shards/handlers/test_transactions_model.py",
]
"""What takes longest, in this order: begun last, it would be what all wait for."""


class SessionScheduling(LoadFileScheduling):
    """Workers get whole files, and whole parts of Spark's."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return SESSIONS.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """For `--dist loadfile` alone; whoever says otherwise gets that."""
    return SessionScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, for several workers to share them (`--no-loadscope-reorder` leaves the order as it is)."""
    places = {file: place for place, file in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(FIRST)))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: Python need not look through it whenever it looks for garbage."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with four shards, one for all tests of a file, which must not kill it."""
    with running(Broker(tmp_path_factory.mktemp("broker") / "data")) as broker:
        yield broker


@pytest.fixture(scope="module")
def etcd() -> Iterator[Etcd]:
    """An etcd of one member, one for all tests of a file, each of which takes a prefix of its own."""
    try:
        with Etcd(size=1) as etcd:
            yield etcd
    except Absent as reason:
        without(reason)


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
