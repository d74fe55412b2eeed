"""A range of a partition, read by a task: every message of it, or an error that says which are missing."""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shardmq.errors import NotFound, OffsetOutOfRange, PreconditionFailed, ProtocolError, ReplyCode
from shardmq.spark.connection.topics import PartitionState, Topics
from shardmq.spark.options import Options
from shardmq.spark.read.columns import Columns
from shardmq.spark.read.reader import BATCH_ROWS, naming
from shardmq.spark.tasks import task_connection
from shardmq.spark.topics.columns import builders
from shardmq.spark.topics.offsets import LOSS_ADVICE, lost
from shardmq.spark.topics.ranges import TopicRange

_log = logging.getLogger("shardmq.spark")


def read_range(options: Options, schema: pa.Schema, part: TopicRange) -> Iterator[pa.RecordBatch]:
    """Read a range, in the order of offsets. Goes on where it was when a gateway or shard was away.

    It belongs to no group and holds nothing at the broker, so that any number of tasks may read one range at once.

    Args:
        options: of the job.
        schema: the columns.
        part: what to read.

    Raises:
        PreconditionFailed: messages of the range are not there, and failOnDataLoss is set.
        NotFound: the topic does not exist, and failOnDataLoss is set.
        ShardmqError: the broker does not answer, or refuses.
    """
    topics = Topics(task_connection(options, part.gateway))
    columns = Columns(schema, builders(part.topic, part.number))
    place = part.first
    while place < part.end:
        try:
            with naming(part.topic, "topic"):
                deliveries = topics.read(part.topic, part.number, place, min(BATCH_ROWS, part.end - place))
        except OffsetOutOfRange as gone:
            place = _behind_missing(options, part, place, PartitionState(part.number, gone.first, gone.end))
            continue
        except NotFound as deleted:
            if options.fails_on_loss:
                raise
            _left_out(f"{part.partition}: messages [{place}, {part.end}) cannot be read: {deleted.text}")
            return
        if not deliveries:  # the partition ends here
            _behind_missing(options, part, place, PartitionState(part.number, 0, place))
            return
        place, row = _in_a_row(part, place, deliveries)
        if row:
            yield columns.batch(row)
        else:
            place = _behind_damage(options, part, place, deliveries[0]["first"])


def _in_a_row(part: TopicRange, place: int, deliveries: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]]]:
    """Where messages from a place on end, and those of them between which none is missing.

    Raises:
        ProtocolError: they begin before the place.
    """
    row: list[dict[str, Any]] = []
    for delivery in deliveries:
        if delivery["first"] < place:
            raise ProtocolError(
                f"{part.partition}: the broker sent messages from {delivery['first']} on, where those from {place} "
                "on were asked for",
                ReplyCode.SYNTAX_ERROR,
            )
        if delivery["first"] > place:
            break
        row.append(delivery)
        place += delivery["count"]
    return place, row


def _behind_damage(options: Options, part: TopicRange, place: int, following: int) -> int:
    """Where a range goes on behind messages that a repair of the broker's store has lost.

    Raises:
        PreconditionFailed: failOnDataLoss is set.
    """
    end = min(following, part.end)
    said = f"{part.partition}: messages [{place}, {end}) cannot be read: they were damaged, and a repair has lost them"
    _leave_out(options, said, "restore a copy of the broker, or set failOnDataLoss to false to go on behind them")
    return end


def _behind_missing(options: Options, part: TopicRange, place: int, state: PartitionState) -> int:
    """Where a range goes on behind messages that are not there.

    Raises:
        PreconditionFailed: failOnDataLoss is set.
    """
    end = state.first if place < state.first < part.end else part.end
    _leave_out(options, lost(part.partition, place, end, state), LOSS_ADVICE)
    return end


def _leave_out(options: Options, said: str, advice: str) -> None:
    if options.fails_on_loss:
        raise PreconditionFailed(f"{said}; {advice}")
    _left_out(said)


def _left_out(said: str) -> None:
    _log.warning("%s; they are left out (failOnDataLoss is false)", said)
