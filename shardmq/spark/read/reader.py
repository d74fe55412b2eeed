"""Reading a queue: cut into slices when a job is planned, each of which a task reads by itself.

    driver     slices ─► [first, end) [first, end) [first, end) …
    executors      read … ─► record batches

A read is a look at the queue as it was when the job was planned. Nothing is acknowledged, marked or moved by it; what
came later is not in it; what was consumed before its task came to it is missing. With drain=true the messages are
reserved first: nobody gets them meanwhile, and each is read, by every attempt of a task, or the task fails.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from shardmq.errors import NotFound, PreconditionFailed, ProtocolError, ReplyCode, ShardmqError
from shardmq.limits import SLICES_MAX
from shardmq.spark.connection.broker import connection
from shardmq.spark.options import DRAIN_PREFIX, Options
from shardmq.spark.read.columns import Columns, arrow_schema

PARTITIONS: Final = 8
"""Of a read that does not say how many. Where it is planned, Spark does not tell how many cores there are."""

BATCH_ROWS: Final = 10_000
"""In a record batch, as Spark has it elsewhere (spark.sql.execution.arrow.maxRecordsPerBatch)."""

_log = logging.getLogger("shardmq.spark")


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: messages numbered [first, end).

    Attributes:
        first: the lowest number.
        end: one past the highest.
        messages: how many there were when the queue was cut.
        is_cut: no more than so many are to be read.
    """

    first: int
    end: int
    messages: int
    is_cut: bool = False


def make_reader(options: Options, schema: StructType) -> "QueueReader":
    """The reader of a job.

    Args:
        options: for reading.
        schema: the columns that are asked for.

    Raises:
        InvalidRequest: a column that there is not, or of another type.
    """
    return QueueReader(options, arrow_schema(schema))


class QueueReader(DataSourceReader):
    """Reads one queue; made by `make_reader`, taken along to the executors."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The slices, once for all actions on a DataFrame.

        Raises:
            NotFound: no such queue.
            PreconditionFailed: the block is over whose messages these were.
            AccessRefused: the user may not read it.
            ConnectionLost, Unavailable: the broker, or the queue's shard, is not there.
        """
        options = self._options
        with naming(options.queue):
            broker = connection(options.url, options.timeout)
            if options.is_drain:
                _, state = broker.reserve(
                    options.queue, options.drain_id, options.max_records, options.drain_timeout_ms
                )
                if state == "acknowledged":
                    if options.drain_id.startswith(DRAIN_PREFIX):
                        raise PreconditionFailed(
                            f"queue '{options.queue}': what was reserved as '{options.drain_id}' is acknowledged, as "
                            "the block of shardmq.spark.drain is over: write what is to be kept inside the block"
                        )
                    _log.warning(
                        "queue '%s': what was reserved as '%s' has been read and acknowledged before; "
                        "there is nothing left of it",
                        options.queue,
                        options.drain_id,
                    )
                    return []
            goal = options.min_partitions or PARTITIONS
            # Cut finely where parts are put together here, as how many there are is known only then.
            is_fine = bool(options.max_records_per_partition or (options.max_records and not options.is_drain))
            cuts = broker.slices(options.queue, SLICES_MAX if is_fine else goal, options.drain_id)
        slices = [Slice(first, end, messages) for first, end, messages in cuts]
        if not is_fine:
            return slices
        if options.max_records and not options.is_drain:
            slices = _first(slices, options.max_records)
        each = -(-sum(part.messages for part in slices) // goal)
        if options.max_records_per_partition:
            each = min(each, options.max_records_per_partition)
        return _of_size(slices, max(each, 1))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a slice, in their order. Goes on where it was when a gateway or shard was away.

        Raises:
            PreconditionFailed: messages that were reserved are not there any more.
            As `partitions`.
        """
        if not isinstance(partition, Slice):
            return  # what Spark makes of no partitions at all
        options, columns = self._options, Columns(self._schema)
        broker = connection(options.url, options.timeout)
        place: int | None = partition.first
        read = 0
        while place is not None and not (partition.is_cut and read == partition.messages):
            count = min(BATCH_ROWS, partition.messages - read) if partition.is_cut else BATCH_ROWS
            with naming(options.queue):
                try:
                    deliveries, after = broker.read(options.queue, place, partition.end, count, options.drain_id)
                except (NotFound, PreconditionFailed) as fault:
                    raise self._is_gone(partition, read, fault.text) if options.is_drain else fault from fault
                if after is not None and after <= place:
                    raise ProtocolError(f"the broker says to read on at {after} behind {place}", ReplyCode.SYNTAX_ERROR)
            place = after
            if deliveries:
                batch = columns.batch(deliveries)
                read += batch.num_rows
                yield batch
        if options.is_drain and read != partition.messages:
            raise self._is_gone(partition, read, "others were acknowledged since")

    def _is_gone(self, partition: Slice, read: int, why: str) -> PreconditionFailed:
        options = self._options
        return PreconditionFailed(
            f"queue '{options.queue}': of {partition.messages} messages that were reserved as '{options.drain_id}', "
            f"numbers {partition.first} to {partition.end - 1}, a task could read {read}: {why}. In Spark: read them "
            "inside the block of shardmq.spark.drain; or begin the job anew, with a longer drainTimeoutMs where it was "
            "the lease"
        )


@contextmanager
def naming(queue: str) -> Iterator[None]:
    """Errors from in here say which queue they are about."""
    try:
        yield
    except ShardmqError as fault:
        if f"'{queue}'" in fault.text:
            raise
        raise fault.with_text(f"queue '{queue}': {fault.text}") from fault


def _first(slices: list[Slice], messages: int) -> list[Slice]:
    """As many of the slices as have so many messages; of the last, perhaps, a part."""
    taken = []
    for part in slices:
        if messages <= 0:
            break
        taken.append(Slice(part.first, part.end, min(part.messages, messages), is_cut=True))
        messages -= part.messages
    return taken


def _of_size(slices: list[Slice], messages: int) -> list[Slice]:
    """Slices of about so many messages, and no more where that can be: a slice is cut again only where its numbers have
    no gaps, as nobody knows here where they are.
    """
    made: list[Slice] = []
    for part in slices:
        last = made[-1] if made else None
        if last is not None and last.messages + part.messages <= messages:
            made[-1] = Slice(last.first, part.end, last.messages + part.messages, part.is_cut)
        elif part.messages > messages and part.end - part.first == part.messages:
            made += [
                Slice(first, min(first + messages, part.end), min(messages, part.end - first), part.is_cut)
                for first in range(part.first, part.end, messages)
            ]
        else:
            made.append(part)
    return made
