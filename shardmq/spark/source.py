"""The data source that `format("shardmq")` names."""

import operator
import site
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import shardmq
from shardmq.errors import InvalidRequest, ReplyCode
from shardmq.spark.options import Options, is_drain, is_topic, parse

_ZIP: Final = Path(shardmq.__file__).parent.parent
"""Where shardmq comes from: a folder, or a zip."""


class _Made:
    """What a pickle makes by calling a function when it is read; one after the other, in their order.

    Args:
        make: the function.
        given: its argument.
    """

    def __init__(self, make: Callable[..., object], given: object) -> None:
        self._made = make, (given,)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._made


class ShardmqDataSource(DataSource):
    """Reads queues and topics, and publishes to exchanges. `shardmq.spark.options` has the options.

    Raises:
        AlreadyAcknowledged: a queue is to be drained under a name of which all was acknowledged.
        ShardmqError: that cannot be asked of the broker.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)
        if is_drain(self._given):  # not in `schema`, which Spark leaves out where the user gives one
            from shardmq.spark.read.reader import check_drain

            check_drain(parse(self._given, "read"))

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickle it with the zip that it comes from, as Spark 4.3 gives --py-files to all but sources of streams."""
        if not _ZIP.is_file():
            return ShardmqDataSource, (self._given,)
        return operator.itemgetter(1), ([_Made(site.addsitedir, str(_ZIP)), _Made(ShardmqDataSource, self._given)],)

    @classmethod
    def name(cls) -> str:
        """The name that format() takes."""
        return "shardmq"

    def schema(self) -> StructType | str:
        """All columns of a queue's messages, or those of Kafka's source where topics are read.

        A schema that the user gives may leave some out; for topics it may name others.
        """
        if is_topic(self._given):
            from shardmq.spark.topics.columns import TOPIC_SCHEMA, WITH_HEADERS

            # Spark does not tell whether it is to be a batch or a stream; their readers look again.
            return WITH_HEADERS if parse(self._given, "topic", "readStream").has_headers else TOPIC_SCHEMA
        from shardmq.spark.read.columns import READ_SCHEMA

        parse(self._given, "read")
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a queue, or of topics.

        Raises:
            InvalidRequest: an option or a column does not exist.
        """
        if is_topic(self._given):
            from shardmq.spark.topics.batch import TopicReader

            return TopicReader(parse(self._given, "topic"), schema)
        from shardmq.spark.read.reader import make_reader

        return make_reader(parse(self._given, "read"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of topics as a stream.

        Raises:
            InvalidRequest: an option or a column does not exist; or a queue is to be read. A stream must be able to
                read a batch again, and a queue has lost acknowledged messages.
        """
        if not is_topic(self._given):
            raise InvalidRequest(
                "readStream reads topics and streams (options subscribe, subscribePattern, assign), and no queues: "
                "what is acknowledged is gone, and a stream could not read a batch again. Read queues in batches: "
                'spark.read.format("shardmq") leaves the messages in their queue, shardmq.spark.drain acknowledges '
                "what a block has read; or bind a topic to the queue's exchange, and read that",
                ReplyCode.NOT_IMPLEMENTED,
            )
        from shardmq.spark.topics.stream import TopicStreamReader

        return TopicStreamReader(parse(self._given, "readStream"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch.

        Raises:
            InvalidRequest: an option or a column does not exist or has another type, or the mode is "overwrite".
        """
        from shardmq.spark.write.writer import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(parse(self._given, "write"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of a stream, which publishes each micro-batch once.

        Raises:
            InvalidRequest: an option or a column does not exist or has another type, or the output mode is "complete".
        """
        from shardmq.spark.write.writer import StreamWriter

        if overwrite:
            raise InvalidRequest(
                'outputMode("complete") would replace what was published; messages are only added: '
                'use "append" or "update"'
            )
        return StreamWriter(parse(self._given, "stream"), schema)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidRequest(
            'mode("overwrite") would empty queues that others publish to; use mode("append"), and '
            "`shardmq queue purge` where a queue is to be emptied first"
        )


__all__ = ["Options", "ShardmqDataSource"]
