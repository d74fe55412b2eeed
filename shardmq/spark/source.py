"""The data source that `format("shardmq")` names."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from shardmq.errors import InvalidRequest, ReplyCode
from shardmq.spark.options import Options, parse


class ShardmqDataSource(DataSource):
    """Reads queues and publishes to exchanges. `shardmq.spark.options` has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """The name that format() takes."""
        return "shardmq"

    def schema(self) -> StructType | str:
        """All columns of a queue's messages. A schema that the user gives may leave some out."""
        from shardmq.spark.read.columns import READ_SCHEMA

        parse(self._given, "read")
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a queue.

        Raises:
            InvalidRequest: an option or a column does not exist.
        """
        from shardmq.spark.read.reader import make_reader

        return make_reader(parse(self._given, "read"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Refuse to read a stream.

        Raises:
            InvalidRequest: always. A stream must be able to read a batch again, and a queue has lost acknowledged
                messages.
        """
        raise InvalidRequest(
            "readStream does not read queues: what is acknowledged is gone, so a stream could not read a batch again. "
            'Read in batches: spark.read.format("shardmq") leaves the messages in their queue, shardmq.spark.drain '
            "acknowledges what a block has read. Streaming reads come with topics",
            ReplyCode.NOT_IMPLEMENTED,
        )

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
