"""Which topics and partitions a job reads, and how far each goes at a moment."""

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from shardmq.errors import InvalidRequest, NotFound, OffsetOutOfRange
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.topics import PartitionState, Topics
from shardmq.spark.options import Options
from shardmq.spark.read.reader import naming
from shardmq.spark.tasks import task_connection
from shardmq.spark.topics.offsets import TopicPartition
from shardmq.spark.topics.ranges import TopicRange

PATTERN_SECONDS: Final = 10.0
"""How old the list of topics that fit a pattern may be."""


class Subscription:
    """What the options subscribe, subscribePattern and assign name.

    Args:
        options: of the job.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._found: list[str] = []  # by the pattern
        self._looked_at = -PATTERN_SECONDS

    def topics(self) -> Topics:
        """The requests about topics, over this process's connection."""
        return Topics(self._broker())

    def states(self) -> dict[TopicPartition, PartitionState]:
        """The partitions there are now.

        Raises:
            NotFound: a topic or a partition that is named does not exist.
            InvalidRequest: no topic fits the pattern.
            ShardmqError: the broker does not answer, or refuses.
        """
        options, topics = self._options, self.topics()
        states = {}
        for topic in self._names(topics):
            with naming(topic, "topic"):
                of_topic = topics.states(topic)
            wanted = options.assign[topic] if options.assign else range(len(of_topic))
            for number in wanted:
                if number >= len(of_topic):
                    raise NotFound(
                        f"topic '{topic}' has {len(of_topic)} partitions, numbered from 0; there is no partition "
                        f"{number}, which option assign names"
                    )
                states[TopicPartition(topic, number)] = of_topic[number]
        return states

    def placed(self, ranges: Iterable[TopicRange]) -> list[TopicRange]:
        """Ranges with the gateways of the hosts that lead their shards now, where the broker names them.

        Raises:
            NotFound: a topic was deleted meanwhile.
            ShardmqError: the broker does not answer, or refuses.
        """
        parts, gateways = list(ranges), {}
        for topic in {part.topic for part in parts}:
            with naming(topic, "topic"):
                gateways[topic] = dict(enumerate(self._broker().gateways(topic)))
        return [replace(part, gateway=gateways[part.topic].get(part.number, "")) for part in parts]

    def seek(self, partition: TopicPartition, time_ms: int) -> int:
        """The offset of a partition's first message of a time or later; of the next one to come where there is none."""
        with naming(partition.topic, "topic"):
            return self.topics().seek(partition.topic, partition.number, time_ms)

    def message_bytes(self, partition: TopicPartition, offset: int) -> float:
        """The average size of a partition's messages from an offset on; 0 where they were dropped meanwhile."""
        try:
            with naming(partition.topic, "topic"):
                return self.topics().message_bytes(partition.topic, partition.number, offset)
        except OffsetOutOfRange:
            return 0.0  # the task that reads them says so

    def _names(self, topics: Topics) -> list[str]:
        options = self._options
        if options.assign:
            return sorted(options.assign)
        if options.subscribe:
            return sorted(options.subscribe)
        found = self._fitting(topics)
        if not found:
            raise InvalidRequest(
                f"no topic's whole name fits option subscribePattern '{options.subscribe_pattern}'; `shardmq topic "
                "list` shows their names"
            )
        return found

    def _fitting(self, topics: Topics) -> list[str]:
        """The topics that fit the pattern, looked for now and then: topics appear rarely, and streams ask often."""
        if time.monotonic() - self._looked_at >= PATTERN_SECONDS:
            fits = re.compile(self._options.subscribe_pattern).fullmatch
            self._found = sorted(name for name in topics.names() if fits(name))
            self._looked_at = time.monotonic()
        return self._found

    def _broker(self) -> BrokerConnection:
        return task_connection(self._options)
