"""Which topics and partitions a job reads, and how far each goes at a moment."""

import logging
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from shardmq.errors import AccessRefused, InvalidRequest, NotFound, OffsetOutOfRange, PreconditionFailed, ShardmqError
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.topics import PartitionState, Topics
from shardmq.spark.options import Options
from shardmq.spark.read.reader import naming
from shardmq.spark.tasks import task_connection
from shardmq.spark.topics.offsets import TopicPartition
from shardmq.spark.topics.ranges import TopicRange

PATTERN_SECONDS: Final = 10.0
"""How old the list of topics that fit a pattern may be."""

_log = logging.getLogger("shardmq.spark")


class Subscription:
    """What the options subscribe, subscribePattern and assign name.

    Args:
        options: of the job.
        broker: the connection to ask over; None for this process's, which one thread at a time may use.
    """

    def __init__(self, options: Options, broker: BrokerConnection | None = None) -> None:
        self._options = options
        self._own_broker = broker
        self._found: list[str] = []  # by the pattern
        self._looked_at = -PATTERN_SECONDS

    def topics(self) -> Topics:
        """The requests about topics."""
        return Topics(self._broker())

    def states(self, read: Collection[str] | None = None) -> dict[TopicPartition, PartitionState]:
        """The partitions there are now.

        What fits a pattern may be deleted at any time, or be nothing that the user may read: that is left out.

        Args:
            read: the topics that a stream reads already; None where a job begins.

        Raises:
            NotFound: a topic or a partition that is named does not exist.
            AccessRefused: a topic that is named, or read already, may not be read.
            InvalidRequest: a job begins, and no topic fits the pattern.
            ShardmqError: the broker does not answer, or refuses.
        """
        options = self._options
        if not options.assign and not options.subscribe:
            return self._fitting_states(read)
        states = {}
        for topic in sorted(options.assign or options.subscribe):
            of_topic = self._states_of(topic)
            wanted = options.assign[topic] if options.assign else range(len(of_topic))
            for number in wanted:
                if number >= len(of_topic):
                    raise NotFound(
                        f"topic '{topic}' has {len(of_topic)} partitions, numbered from 0; there is no partition "
                        f"{number}, which option assign names"
                    )
                states[TopicPartition(topic, number)] = of_topic[number]
        return states

    def has(self, partition: TopicPartition) -> bool:
        """Whether the options name a partition, be it there or not."""
        topic, number = partition
        if self._options.assign:
            return number in self._options.assign.get(topic, ())
        return topic in self._options.subscribe if self._options.subscribe else self._fits(topic)

    def states_of(self, topics: Iterable[str]) -> dict[TopicPartition, PartitionState]:
        """All partitions of some topics; of those that do not exist there are none.

        Raises:
            ShardmqError: the broker does not answer, or refuses.
        """
        states: dict[TopicPartition, PartitionState] = {}
        for topic in sorted(topics):
            try:
                of_topic = self._states_of(topic)
            except NotFound:
                continue  # the task that reads it says so
            states |= {TopicPartition(topic, state.number): state for state in of_topic}
        return states

    def placed(self, ranges: Iterable[TopicRange]) -> list[TopicRange]:
        """Ranges with the gateways of the hosts that lead their shards now, where the broker names them.

        Raises:
            ShardmqError: the broker does not answer, or refuses.
        """
        parts, gateways = list(ranges), {}
        for topic in {part.topic for part in parts}:
            try:
                with naming(topic, "topic"):
                    gateways[topic] = dict(enumerate(self._broker().gateways(topic)))
            except NotFound:
                gateways[topic] = {}  # the task that reads it says so
        return [replace(part, gateway=gateways[part.topic].get(part.number, "")) for part in parts]

    def seek(self, partition: TopicPartition, time_ms: int) -> int:
        """The offset of a partition's first message of a time or later; of the next one to come where there is none."""
        with naming(partition.topic, "topic"):
            return self.topics().seek(partition.topic, partition.number, time_ms)

    def message_bytes(self, partition: TopicPartition, offset: int) -> float:
        """The average size of a partition's messages from an offset on; 0 where they are not there any more."""
        try:
            with naming(partition.topic, "topic"):
                return self.topics().message_bytes(partition.topic, partition.number, offset)
        except (OffsetOutOfRange, NotFound):
            return 0.0  # the task that reads them says so

    def _states_of(self, topic: str) -> list[PartitionState]:
        with naming(topic, "topic"):
            return self.topics().states(topic)

    def _fitting_states(self, read: Collection[str] | None) -> dict[TopicPartition, PartitionState]:
        """The partitions of the topics that fit the pattern."""
        states: dict[TopicPartition, PartitionState] = {}
        known = {topic for topic in read or () if self._fits(topic)}
        for topic in sorted(known.union(self._fitting())):
            try:
                of_topic = self._states_of(topic)
            except (NotFound, PreconditionFailed, AccessRefused) as fault:  # or it is a plain queue by now
                if isinstance(fault, AccessRefused) and topic in known:
                    raise
                self._leave_out(topic, fault)
                continue
            states |= {TopicPartition(topic, state.number): state for state in of_topic}
        if not states and read is None:
            raise InvalidRequest(
                f"no topic's whole name fits option subscribePattern '{self._options.subscribe_pattern}', or the user "
                "may read none of them; `shardmq topic list` shows the names of topics"
            )
        return states

    def _fits(self, topic: str) -> bool:
        return re.fullmatch(self._options.subscribe_pattern, topic) is not None

    def _fitting(self) -> list[str]:
        """The topics that fit the pattern, looked for now and then: topics appear rarely, and streams ask often."""
        if time.monotonic() - self._looked_at >= PATTERN_SECONDS:
            self._found = [name for name in self.topics().names() if self._fits(name)]
            self._looked_at = time.monotonic()
        return self._found

    def _leave_out(self, topic: str, fault: ShardmqError) -> None:
        """Ask no more for a topic that fits the pattern and cannot be read, before names are looked for again."""
        if topic in self._found:
            self._found.remove(topic)
            _log.info("left out of subscribePattern: %s", fault.text)

    def _broker(self) -> BrokerConnection:
        return self._own_broker or task_connection(self._options)
