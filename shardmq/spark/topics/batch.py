"""The reader of batches: where it begins and ends is fixed when a job is planned, and tasks read ranges."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from shardmq.errors import InvalidRequest
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.option_values import EARLIEST
from shardmq.spark.options import Options
from shardmq.spark.topics.columns import topic_schema
from shardmq.spark.topics.fetch import read_range
from shardmq.spark.topics.offsets import end_of, start_of
from shardmq.spark.topics.ranges import TopicRange, ranges_between
from shardmq.spark.topics.subscription import Subscription


class TopicReader(DataSourceReader):
    """Reads topics as they are when a job is planned. It is made on the driver and copied to the executors.

    Args:
        options: of the job.
        schema: the columns that the job asks for.

    Raises:
        InvalidRequest: a column does not exist, or has another type.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = topic_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        """What each task is to read: `ranges`.

        Raises:
            ShardmqError: as there.
        """
        return self.ranges()

    def ranges(self, broker: BrokerConnection | None = None) -> list[TopicRange]:
        """Find where each partition begins and ends, once for all actions on a DataFrame, and cut that for tasks.

        Args:
            broker: the connection to ask over; None for this process's, which one thread at a time may use.

        Raises:
            NotFound: a topic or a partition does not exist.
            InvalidRequest: the options fit neither each other nor the partitions there are.
            PreconditionFailed: an offset is not there, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        options, subscription = self._options, Subscription(self._options, broker)
        states = subscription.states()
        start = start_of(options, states, EARLIEST, subscription.seek)
        end = end_of(options, states, subscription.seek)
        for partition, place in end.items():
            if place < start[partition] and not isinstance(options.ending_offsets, str):
                raise InvalidRequest(
                    f"{partition} is to be read from {start[partition]} to {place}, which is before it"
                )
        return subscription.placed(ranges_between(start, end, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a range, in the order of their offsets.

        Raises:
            PreconditionFailed: messages of the range are not there, and failOnDataLoss is set.
            NotFound: the topic does not exist, and failOnDataLoss is set.
            ShardmqError: the broker does not answer, or refuses.
        """
        if isinstance(partition, TopicRange):  # else Spark's stand-in for no partitions
            yield from read_range(self._options, self._schema, partition)
