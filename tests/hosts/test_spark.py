"""Executors on the broker's own hosts publish to the gateways there, and to others while those are away.

Spark is local on each host: its tasks run there, as those of a cluster's executor would, and pick a gateway by nothing
but that machine's addresses. A master, workers and executors beside would be five JVMs more, and pick no other one.
"""

import os
import shutil
from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.spark.connection.gateways import NEAREST
from tests.hosts.broker import HostsBroker
from tests.hosts.faults.spark_jobs import SparkJobs
from tests.hosts.hosts import CLIENT, NAMES, Hosts
from tests.running import without

EXECUTORS = ("b", "c")
"""Neither is the first in the URL, with which a task would begin otherwise."""


@pytest.fixture(scope="module")
def broker() -> Iterator[HostsBroker]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17 or newer, and there is no java here")
    try:
        with Hosts() as hosts, HostsBroker(hosts, "broker").running() as broker:
            yield broker
    except Absent as reason:
        without(reason)


def used(connection: shardmq.Connection, broker: HostsBroker) -> dict[str, set[str]]:
    """By the host of an executor, the hosts whose gateways its processes are connected to."""
    names = {broker.hosts[name].address: name for name in NAMES}
    found: dict[str, set[str]] = {}
    for row in connection.topology("connections"):
        if row["client_properties"]["product"] == "shardmq.spark":
            found.setdefault(names[row["peer_host"]], set()).add(row["gateway"].partition(".")[0])
    return found


def test_executors_publish_to_their_own_hosts_gateway_and_to_another_one_while_that_is_away(
    broker: HostsBroker,
) -> None:
    with broker.hosts[CLIENT].inside(), shardmq.connect(broker.url, timeout=60) as connection:
        executors = {name: SparkJobs(broker.hosts, broker, name, NEAREST) for name in EXECUTORS}
        for spark in executors.values():
            spark.begin()
        assert used(connection, broker) == {name: {name} for name in EXECUTORS}

        away, stays = EXECUTORS
        broker.ups[away].kill()  # and with it the host's processes of the broker, but not Spark
        broker.wait_for(lambda: used(connection, broker).get(away, set()) - {away}, "it goes on with another gateway")
        steps = {name: spark.steps() for name, spark in executors.items()}
        broker.wait_for(lambda: all(spark.steps() > steps[name] for name, spark in executors.items()), "jobs go on")
        after = used(connection, broker)
        assert away not in after[away]
        assert after[stays] == {stays}

        for name, spark in executors.items():
            told, wrongs = spark.finish()
            print(f"{name}: {told}")
            assert not wrongs
