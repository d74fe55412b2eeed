"""The demo's Spark: it counts a topic as a stream, and goes on from its checkpoint."""

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

import shardmq
from shardmq.cmd.demo.member import TOPIC
from shardmq.cmd.demo.stream import count
from shardmq.cmd.run.broker import Broker

CARRIERS = ("UA", "B6", "DL")


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
    channel.topic_delete(TOPIC)
