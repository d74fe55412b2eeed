"""Reading a queue: it is cut into slices when a job is planned, and each task reads one.

    driver     slices ─► [first, end) [first, end) [first, end) …
    executors      read … ─► record batches

A read sees the queue as it was when the job was planned. It acknowledges, marks and moves nothing. Messages that came
later are not in it, and those consumed before their task read them are missing. With drain=true the messages are
reserved first: nobody else gets them meanwhile, and every attempt of a task reads all of its messages or fails.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from shardmq.errors import AlreadyAcknowledged, NotFound, PreconditionFailed, ProtocolError, ReplyCode, ShardmqError
from shardmq.limits import SLICES_MAX
from shardmq.spark.connection.reservations import is_acknowledged
from shardmq.spark.options import DRAIN_PREFIX, Options
from shardmq.spark.read.columns import Columns, arrow_schema
from shardmq.spark.tasks import task_connection

PARTITIONS: Final = 8
"""Partitions of a read without minPartitions. Where a read is planned, Spark does not tell how many cores there are."""

BATCH_ROWS: Final = 10_000
"""Rows of an Arrow batch, as in spark.sql.execution.arrow.maxRecordsPerBatch."""


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads: messages numbered [first, end).

    Attributes:
        first: the lowest number.
        end: the number behind the highest one.
        messages: how many messages the slice had when the queue was cut.
        is_cut: whether the task reads no more than `messages`.
        gateway: on the host that led the queue's shard then, as host:port; "" where that is unknown.
    """

    first: int
    end: int
    messages: int
    is_cut: bool = False
    gateway: str = ""


def make_reader(options: Options, schema: StructType) -> "QueueReader":
    """Make the reader of a job.

    Args:
        options: of the job.
        schema: the columns that the job asks for.

    Raises:
        InvalidRequest: a column does not exist, or has another type.
    """
    return QueueReader(options, arrow_schema(schema))


def check_drain(options: Options) -> None:
    """Check that there is something left to drain, when a DataFrame is made.

    Spark plans the reading later: behind mode("overwrite"), when what an earlier run has written is gone.

    Args:
        options: of the job.

    Raises:
        AlreadyAcknowledged: the messages were acknowledged by an earlier run.
        ShardmqError: the broker does not answer, or refuses.
    """
    if not options.is_drain or options.drain_id.startswith(DRAIN_PREFIX):
        return
    with naming(options.queue):
        if is_acknowledged(task_connection(options), options.queue, options.drain_id):
            raise acknowledged_before(options)


def acknowledged_before(options: Options) -> AlreadyAcknowledged:
    """The error where nothing is left: a DataFrame without rows would be written over what an earlier run wrote."""
    over = "the block of shardmq.spark.drain is over: use the DataFrame inside the block"
    earlier = "an earlier run was done with them: give another drainId for what came since; or "
    return AlreadyAcknowledged(
        f"queue '{options.queue}': messages reserved as '{options.drain_id}' are acknowledged, as "
        f"{'' if options.drain_id.startswith(DRAIN_PREFIX) else earlier}{over}"
    )


class QueueReader(DataSourceReader):
    """Reads one queue. It is made on the driver and copied to the executors."""

    def __init__(self, options: Options, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the queue into slices, once for all actions on a DataFrame.

        Raises:
            NotFound: the queue does not exist.
            AlreadyAcknowledged: the messages were acknowledged, by an earlier run or at the end of a drain block.
            AccessRefused: the user may not read the queue.
            ConnectionLost: the broker does not answer.
            Unavailable: the queue's shard is away.
        """
        options = self._options
        with naming(options.queue):
            broker = task_connection(options)
            if options.is_drain:
                _, state = broker.reserve(
                    options.queue, options.drain_id, options.max_records, options.drain_timeout_ms
                )
                if state == "acknowledged":
                    raise acknowledged_before(options)
            goal = options.min_partitions or PARTITIONS
            # Cut finely where slices are joined here: how many messages there are is known only afterwards.
            is_fine = bool(options.max_records_per_partition or (options.max_records and not options.is_drain))
            cuts = broker.slices(options.queue, SLICES_MAX if is_fine else goal, options.drain_id)
            (gateway,) = broker.gateways(options.queue) or [""]
        slices = [Slice(first, end, messages) for first, end, messages in cuts]
        if is_fine:
            slices = self._fitted(slices, goal)
        return [replace(part, gateway=gateway) for part in slices]

    def _fitted(self, slices: list[Slice], goal: int) -> list[Slice]:
        """Slices of the size that the options ask for."""
        options = self._options
        if options.max_records and not options.is_drain:
            slices = _first(slices, options.max_records)
        each = -(-sum(part.messages for part in slices) // goal)
        if options.max_records_per_partition:
            each = min(each, options.max_records_per_partition)
        return _of_size(slices, max(each, 1))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a slice, in their order. Goes on where it was when a gateway or shard was away.

        Raises:
            NotFound: the queue does not exist.
            PreconditionFailed: messages that were reserved are not there any more.
            AccessRefused: the user may not read the queue.
            ConnectionLost: the broker does not answer.
            Unavailable: the queue's shard is away.
        """
        if not isinstance(partition, Slice):
            return  # Spark's stand-in for no partitions
        options, columns = self._options, Columns(self._schema)
        broker = task_connection(options, partition.gateway)
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
def naming(name: str, kind: str = "queue") -> Iterator[None]:
    """Name a queue, or what else is read, in errors of the block."""
    try:
        yield
    except ShardmqError as fault:
        if f"'{name}'" in fault.text:
            raise
        raise fault.with_text(f"{kind} '{name}': {fault.text}") from fault


def _first(slices: list[Slice], messages: int) -> list[Slice]:
    """The first slices that have so many messages together; of the last one perhaps a part."""
    taken = []
    for part in slices:
        if messages <= 0:
            break
        taken.append(Slice(part.first, part.end, min(part.messages, messages), is_cut=True))
        messages -= part.messages
    return taken


def _of_size(slices: list[Slice], messages: int) -> list[Slice]:
    """Join and cut slices to about so many messages.

    A slice is cut only where its numbers have no gaps, as where the gaps are is not known here.
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
