"""The data source that `format("shardmq")` names."""

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from shardmq.errors import InvalidRequest
from shardmq.spark.options import Options, parse


class ShardmqDataSource(DataSource):
    """Queues to read, exchanges to publish to. The options are in `shardmq.spark.options`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """What format() calls it."""
        return "shardmq"

    def schema(self) -> StructType | str:
        """All columns that a queue's messages have; a schema of the user's own may leave some out."""
        from shardmq.spark.read.columns import READ_SCHEMA

        parse(self._given, "read")
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a queue, without changing it unless it is drained.

        Raises:
            InvalidRequest: an option or a column that there is not.
        """
        from shardmq.spark.read.reader import make_reader

        return make_reader(parse(self._given, "read"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Publishes the rows of a batch.

        Raises:
            InvalidRequest: an option or column that there is not, of another type, or mode("overwrite").
        """
        from shardmq.spark.write.writer import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(parse(self._given, "write"), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Publishes the rows of a stream, each micro-batch once.

        Raises:
            As `writer`.
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
