"""The demo's Spark: it counts a topic as a stream, and goes on from its checkpoint."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import shardmq
import shardmq.aio
from shardmq.cmd.demo.member import TOPIC
from shardmq.cmd.demo.stream import count
from shardmq.cmd.run.broker import Broker
from shardmq.management.findings.evaluate import findings_at_once

CARRIERS = ("UA", "B6", "DL")


async def found(broker: Broker) -> list[dict[str, Any]]:
    """What is found wrong at once, however new."""
    async with await shardmq.aio.connect(broker.url, administrative=True) as connection:
        return await findings_at_once(connection, f"127.0.0.1:{broker.port}", 0.0)


def test_what_is_counted_later_is_added_to_what_the_checkpoint_has(
    spark: SparkSession, broker: Broker, channel: shardmq.Channel, tmp_path: Path
) -> None:
    channel.topic_declare(TOPIC, 3)
    expected: Counter[str] = Counter()
    for end in (30, 50):
        carriers = [CARRIERS[number % 3] for number in range(expected.total(), end)]
        with channel.publisher() as publisher:
            for carrier in carriers:
                publisher.publish(TOPIC, carrier, b"a flight")
        expected.update(carriers)
        assert count(spark, broker.url, str(tmp_path / "checkpoint")) == expected
        assert [row for row in asyncio.run(found(broker)) if TOPIC in row["name"]] == []
    channel.topic_delete(TOPIC)
