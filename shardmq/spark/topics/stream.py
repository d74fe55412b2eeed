"""The reader of streams: Spark's checkpoint has the offsets, and each micro-batch is ranges of them.

    driver      latestOffset ─► written to the checkpoint ─► partitions(start, end) ─► ranges
    executors   read … ─► record batches
    driver      latestOffset(end): all before `end` is done with; a group shows that to others

A micro-batch that is run again has the same offsets, and so the same messages: the sink decides whether they count
twice. Partitions that are added to a topic meanwhile are read from their first message.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from shardmq.errors import PreconditionFailed, ShardmqError
from shardmq.spark.option_values import LATEST
from shardmq.spark.options import Options
from shardmq.spark.topics.columns import topic_schema
from shardmq.spark.topics.fetch import read_range
from shardmq.spark.topics.offsets import (
    GONE_ADVICE,
    Json,
    Places,
    States,
    TopicPartition,
    from_json,
    gone,
    start_of,
    to_json,
    within,
)
from shardmq.spark.topics.partition_ids import (
    REPLACED_ADVICE,
    Ids,
    ids_in,
    ids_of,
    made_anew,
    replaced,
    with_ids,
)
from shardmq.spark.topics.ranges import TopicRange, ranges_between
from shardmq.spark.topics.rate_limit import limited, rows_of_bytes
from shardmq.spark.topics.subscription import Subscription

IDLE_SECONDS: Final = 0.1
"""A stream without a trigger asks a hundred times a second for what is new. Where nothing is, or too little for a
micro-batch, it hears so later."""

_log = logging.getLogger("shardmq.spark")


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. One is on the driver for as long as a query runs; tasks have copies.

    Args:
        options: of the job.
        schema: the columns that the job asks for.

    Raises:
        InvalidRequest: a column does not exist, or has another type.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = topic_schema(schema)
        self._subscription = Subscription(options)
        self._target: Places | None = None  # of Trigger.AvailableNow
        self._seen: States | None = None
        self._planned: Json = {}
        self._shown: Places = {}  # to others, by the group
        self._warned: set[str] = set()
        self._last_batch = time.monotonic()

    def initialOffset(self) -> Json:
        """Where a stream begins that has no checkpoint yet.

        Raises:
            InvalidRequest: the options do not fit the partitions there are.
            PreconditionFailed: an offset is not there, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        states = self._subscription.states()
        places = start_of(self._options, states, LATEST, self._subscription.seek)
        return with_ids(to_json(places), ids_of(states))

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a micro-batch, as far as Spark has one of the kind; `latestOffset` knows the others."""
        options = self._options
        if options.max_offsets:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        return ReadMinRows(options.min_offsets) if options.min_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note how far the partitions go now: a query with Trigger.AvailableNow ends there."""
        self._target = _ends(self._subscription.states(read=()))

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Where the next micro-batch ends: at `start` where there is to be none yet.

        Partitions that were deleted are in `start` and not in the end, as with Kafka's source.

        Raises:
            PreconditionFailed: messages from `start` on are not there, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        begin, ids = from_json(start), ids_in(start)
        if self._options.group:
            self._show(begin)
        self._seen = states = self._subscription.states({partition.topic for partition in begin})
        others = made_anew(ids, ids_of(states))
        end = self._reached(begin, states, others)
        if (end == begin and not others) or self._is_early(begin, end, limit):
            if self._target is None:
                time.sleep(IDLE_SECONDS)
            return start
        self._last_batch = time.monotonic()
        places = self._limited(_begun(begin, end, others), end, states, limit)
        kept = {partition: number for partition, number in ids.items() if partition in end}
        self._planned = with_ids(to_json(places), {**kept, **ids_of(states)})
        return self._planned

    def reportLatestOffset(self) -> Json:
        """How far the partitions went when the micro-batch was planned. The query's progress shows it."""
        states = self._seen if self._seen is not None else self._subscription.states(read=())
        return with_ids(to_json(_ends(states)), ids_of(states))

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The ranges of a micro-batch, the same ones each time it is run; wherever their shards are led then.

        Raises:
            PreconditionFailed: a topic was made anew since the micro-batch was planned, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        begin, until = from_json(start), from_json(end)
        others = made_anew(ids_in(start), ids_in(end))
        if end != self._planned:  # but before the query was started again
            others |= self._made_anew_since(begin, until, ids_in(end))
        ranges = ranges_between(_begun(begin, until, others), until, self._options)
        return self._subscription.placed(ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in the order of their offsets. A task calls it.

        Raises:
            PreconditionFailed: messages of the range are not there, and failOnDataLoss is set.
            NotFound: the topic does not exist, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        if isinstance(partition, TopicRange):  # else Spark's stand-in for no partitions
            yield from read_range(self._options, self._schema, partition)

    def commit(self, end: Json) -> None:
        """Do nothing: Spark's checkpoint has the offsets, and the broker keeps nothing for a reader."""

    def stop(self) -> None:
        """Leave the connection as it is: other queries of this process may use it."""

    def _show(self, begin: Places) -> None:
        """Commit where the stream is to its group, for others to see: all before `begin` is done with."""
        moved = {partition: place for partition, place in begin.items() if self._shown.get(partition) != place}
        self._shown = begin
        for topic in sorted({partition.topic for partition in moved}):
            offsets = [(partition.number, place) for partition, place in moved.items() if partition.topic == topic]
            try:
                self._subscription.topics().commit(topic, self._options.group, offsets)
            except ShardmqError as fault:  # the stream goes by its checkpoint
                _log.warning(
                    "group '%s' does not show how far the stream is in topic '%s': %s",
                    self._options.group,
                    topic,
                    fault.text,
                )

    def _made_anew_since(self, begin: Places, end: Places, ids: Ids) -> set[TopicPartition]:
        """The partitions of a micro-batch that are others now than when it was planned.

        Raises:
            PreconditionFailed: there are some, and failOnDataLoss is set.
        """
        read = {partition for partition, place in end.items() if place > begin.get(partition, 0)}
        before = {partition: number for partition, number in ids.items() if partition in read}
        others = made_anew(before, ids_of(self._subscription.states_of({partition.topic for partition in before})))
        if others:
            self._lose(replaced(others), REPLACED_ADVICE)
        return others

    def _reached(self, begin: Places, states: States, others: set[TopicPartition]) -> Places:
        """Where a micro-batch would end without a limit. Of partitions that were made anew, the next one reads.

        Raises:
            PreconditionFailed: where it begins is not there, and failOnDataLoss is set.
        """
        deleted = {partition for partition in begin if partition not in states and self._subscription.has(partition)}
        if deleted:
            self._lose(gone(deleted), GONE_ADVICE)
        end = {partition: place for partition, place in begin.items() if partition not in deleted}
        for partition, state in states.items():
            start = begin.get(partition, 0)
            within(partition, start, states, self._options)
            if partition in others or start > state.next:
                end[partition] = state.first
                continue
            place = state.next if self._target is None else min(self._target.get(partition, 0), state.next)
            end[partition] = max(place, start)
        if others:
            self._lose(replaced(others), REPLACED_ADVICE)
        return end

    def _lose(self, said: str, advice: str) -> None:
        """Go on without messages that are not there, and say so once.

        Raises:
            PreconditionFailed: failOnDataLoss is set.
        """
        if self._options.fails_on_loss:
            raise PreconditionFailed(f"{said}; {advice}")
        if said not in self._warned:
            self._warned.add(said)
            _log.warning("%s; the stream goes on (failOnDataLoss is false)", said)

    def _is_early(self, begin: Places, end: Places, limit: ReadLimit) -> bool:
        """Whether so few messages are to wait for more."""
        options = self._options
        if not options.min_offsets or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waiting = sum(max(0, place - begin.get(partition, 0)) for partition, place in end.items())
        is_late = (time.monotonic() - self._last_batch) * 1000 >= options.max_delay_ms
        return waiting < options.min_offsets and not is_late

    def _limited(self, begin: Places, end: Places, states: States, limit: ReadLimit) -> Places:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end  # no limit is set, or Spark wants all whatever they are, as with Trigger.Once
        if options.max_bytes:
            sizes = {
                partition: self._subscription.message_bytes(
                    partition, max(begin.get(partition, 0), states[partition].first)
                )
                for partition, place in end.items()
                if place > begin.get(partition, 0)
            }
            end = limited(begin, end, rows_of_bytes(begin, end, sizes, options.max_bytes))
        return limited(begin, end, options.max_offsets) if options.max_offsets else end


def _begun(begin: Places, end: Places, others: set[TopicPartition]) -> Places:
    """Where a micro-batch begins, of which nothing is read in partitions that were made anew."""
    return begin | {partition: end[partition] for partition in others if partition in end}


def _ends(states: States) -> Places:
    return {partition: state.next for partition, state in states.items()}
