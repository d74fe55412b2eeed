"""Commits of which shards read longer than a command waits for a shard: they get through, and hold nobody up."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.running import running

SLOW = """
import time

from shardmq.coordinator.handlers import commands
from shardmq.shards.state import preparations
from shardmq.shards.storage.staging_table import StagingTable

commands.SHARD_SECONDS = 0.3
preparations.PASS_BYTES = preparations.SLICE_BYTES = 1
preparations.TELL_SECONDS = 0.05
check = StagingTable.check


def slowed(*arguments):
    time.sleep(0.02)
    return check(*arguments)


StagingTable.check = slowed
"""
"""What the broker's Pythons do before anything else: each staged batch takes long to read, in a pass of its own."""

BATCHES = 60
BODIES = [bytes(30_000)] * 10
"""Of one batch."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    (folder / "sitecustomize.py").write_text(SLOW)
    path = f"{folder}:{Path(shardmq.__file__).parents[1]}"
    with running(Broker(folder / "data", shards=2, variables={"PYTHONPATH": path})) as broker:
        yield broker


def test_a_commit_that_takes_long_gets_through_and_others_do_not_wait_for_it(broker: Broker) -> None:
    ends: dict[str, float] = {}

    def end(transaction: shardmq.Transaction) -> None:
        assert transaction.commit()
        ends[transaction.name] = time.monotonic()

    with shardmq.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        for queue in ("many", "few"):
            channel.queue_declare(queue, durable=True)
        large = channel.transaction("large")
        for _ in range(BATCHES):
            large.publish_many("", "many", BODIES)
            large.flush()
        large.seal()
        committing = threading.Thread(target=end, args=(large,))
        committing.start()
        turns, beside = 0, connection.channel()
        while committing.is_alive():
            small = beside.transaction(f"small-{turns}")
            small.publish("", "few", b"one")
            end(small)
            turns += 1
            channel.basic_publish("", "few", b"beside it")
        committing.join()
        assert ends["large"] > ends["small-0"]
        assert channel.queue_declare("many", passive=True).messages == BATCHES * len(BODIES)
        assert channel.queue_declare("few", passive=True).messages == 2 * turns
