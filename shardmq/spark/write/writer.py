"""Writers of batches and streams: tasks stage rows, and the driver commits them.

Spark runs a partition as often as it likes, and asks the driver to commit one attempt of each. So every attempt stages
under a number of its own, and the commit names the attempts that count; what others staged is dropped.

    driver   writer = BatchWriter(…)         begin: the transaction has name and number
    task     write(batches)                  begin again, publish …, seal ─► Staged(number, attempt, messages)
    driver   commit(messages)                one durable decision; asked again after a lost answer
             or abort(messages)              the broker refuses it after a commit
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shardmq.errors import InvalidRequest, PreconditionFailed, ShardmqError
from shardmq.limits import ATTEMPTS_MAX, TRANSACTION_TIMEOUT_MS
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.options import AT_LEAST_ONCE, Options, new_transaction_id
from shardmq.spark.tasks import task_connection
from shardmq.spark.write.publisher import MANDATORY, PublishWindow
from shardmq.spark.write.rows import RowSplitter, check_columns

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Local properties by which Spark tells tasks their micro-batch (MicroBatchExecution, StreamExecution)."""

_log = logging.getLogger("shardmq.spark")
_T = TypeVar("_T")


@dataclass
class Staged(WriterCommitMessage):
    """What one attempt of a task did.

    Attributes:
        transaction: the transaction's name; "" where rows were published at once.
        number: the transaction's number; 0 where it was committed before and nothing was staged.
        attempt: the attempt's random number.
        messages: messages staged, as the seal counts them: once for each shard they went to.
        rows: rows published.
        bytes: of their records.
    """

    transaction: str
    number: int
    attempt: int
    messages: int
    rows: int
    bytes: int


class _Writing:
    """What writers of batches and streams share.

    Args:
        options: of the job.
        schema: of the DataFrame.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        check_columns(schema, options)
        self.options = options
        self.columns = list(schema.fieldNames())

    def begin(self, transaction: str, number: int = 0, broker: BrokerConnection | None = None) -> int:
        """Begin a transaction, or renew the timeout of the one with that number.

        Args:
            transaction: its name.
            number: its number; 0 for any.
            broker: the connection to use; None for this process's.

        Returns:
            The transaction's number; 0 where it has been committed.
        """
        number, is_committed = (broker or self.broker()).begin(transaction, self.options.transaction_timeout_ms, number)
        return 0 if is_committed else number

    def stage(self, transaction: str, number: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Publish a partition: staged in the transaction, or at once where its number is 0."""
        broker = self.broker()
        publisher = PublishWindow(broker, number, timeout=self.options.timeout)
        try:
            size = self._publish(publisher, transaction, number, batches)
        except BaseException:
            broker.drop()  # nobody waits for its unconfirmed publishes any more
            raise
        messages = broker.seal(number, publisher.attempt) if number and publisher.messages else 0
        return Staged(transaction, number, publisher.attempt, messages, publisher.messages, size)

    def commit(self, transaction: str, number: int, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit what the tasks staged."""
        attempts = [(staged.attempt, staged.messages) for staged in _staged(messages) if staged.messages]
        if len(attempts) > ATTEMPTS_MAX:
            raise InvalidRequest(
                f"{len(attempts)} partitions in one transaction; the broker takes {ATTEMPTS_MAX}: "
                "coalesce(…) the DataFrame before it is written"
            )
        if not self.broker().commit(transaction, number, attempts):
            _log.warning(
                "transaction %s is committed, but a shard is still to carry it out; its messages appear then",
                transaction,
            )

    def abort(self, transaction: str, number: int = 0) -> None:
        """Abort the transaction, unless it is committed."""
        try:
            self.broker().abort(transaction, number)
        except PreconditionFailed as refused:
            _log.warning("transaction '%s' is not aborted, as it was committed before: %s", transaction, refused.text)

    def broker(self) -> BrokerConnection:
        """This process's connection."""
        return task_connection(self.options)

    def target(self) -> str:
        """The job's target in words."""
        if self.options.exchange is None or "exchange" in self.columns:
            return "the exchanges of column exchange"
        return f"exchange '{self.options.exchange}'" if self.options.exchange else "the default exchange"

    def explained(self, doing: str, step: Callable[[], _T]) -> _T:
        """Do a step; its errors name the target."""
        try:
            return step()
        except ShardmqError as fault:
            raise fault.with_text(f"{doing} {self.target()} failed: {fault.text}") from fault

    def _publish(
        self, publisher: PublishWindow, transaction: str, number: int, batches: Iterator[pa.RecordBatch]
    ) -> int:
        """Publish all batches, renewing the transaction's timeout; returns the bytes of the records."""
        mandatory = MANDATORY if self.options.is_mandatory else 0
        renewed, period = time.monotonic(), (self.options.transaction_timeout_ms or TRANSACTION_TIMEOUT_MS) / 3000
        size = 0
        for rows in RowSplitter(self.columns, self.options, publisher.broker.body_max).split(batches):
            publisher.publish(
                rows.exchange, rows.routing_key, rows.flags | mandatory, rows.count, rows.records, rows.delay_ms
            )
            size += len(rows.records)
            if number and time.monotonic() - renewed > period:
                self.renew(transaction, number, publisher.broker)
                renewed = time.monotonic()
        publisher.flush()
        return size

    def renew(self, transaction: str, number: int, broker: BrokerConnection | None = None) -> None:
        """Renew a transaction's timeout.

        Raises:
            PreconditionFailed: the transaction has ended; the task is late, or the job too slow.
        """
        try:
            found = self.begin(transaction, number, broker)
        except PreconditionFailed as fault:
            raise PreconditionFailed(_over(transaction, number)) from fault
        if not found:
            raise PreconditionFailed(_over(transaction, number))


class BatchWriter(DataSourceArrowWriter):
    """Writes one batch. Spark makes it once on the driver and copies it to every task.

    Args:
        options: of the job.
        schema: of the DataFrame.

    Raises:
        InvalidRequest: such a DataFrame cannot be published.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writing = _Writing(options, schema)
        self._transaction = ""
        self._number = 0
        if options.delivery != AT_LEAST_ONCE:
            # Begun here and not by each task, so that a task that outlives its job cannot begin it again.
            name = self._transaction = options.transaction_id or new_transaction_id()
            self._number = self._writing.explained("beginning a transaction for", lambda: self._writing.begin(name))
            if not self._number:
                _log.warning("transaction '%s' was committed before (option txnId): nothing is published now", name)
        elif options.transaction_id is not None:
            raise InvalidRequest(
                "option txnId names a transaction, and delivery=at-least-once has none; leave out one of them"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a partition. A task calls it."""
        return self._writing.explained("publishing to", lambda: self._write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the attempts that count. The driver calls it when every task has succeeded."""
        if self._number:
            self._writing.explained(
                f"committing transaction '{self._transaction}' to",
                lambda: self._writing.commit(self._transaction, self._number, messages),
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        """Abort the transaction. The driver calls it when a task or the commit has failed."""
        if self._number:
            self._writing.abort(self._transaction, self._number)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        if self._transaction and not self._number:
            return Staged(self._transaction, 0, 0, 0, 0, 0)
        if self._number:
            self._writing.renew(self._transaction, self._number)
        return self._writing.stage(self._transaction, self._number, batches)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each in a transaction named by query and batch.

    Spark makes one writer for the tasks of a micro-batch and another one for its commit, so the transaction's name
    travels in the commit messages.

    Args:
        options: of the job.
        schema: of the DataFrame.

    Raises:
        InvalidRequest: such a DataFrame cannot be published.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writing = _Writing(options, schema)
        self._is_direct = options.delivery == AT_LEAST_ONCE

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish a partition of a micro-batch. A task calls it."""
        return self._writing.explained("publishing to", lambda: self._write(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch. The driver calls it."""
        for name in _names(messages):
            self._writing.explained(
                f"committing micro-batch {batchId}, transaction '{name}', to",
                partial(self._commit, name, messages),
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002
        """Abort a micro-batch. The driver calls it.

        A transaction that no message names is joined when the stream goes on, as the micro-batch has the same name
        then; or it ends by its timeout.
        """
        for name in _names(messages):
            for number in _numbers(name, messages) - {0}:
                self._writing.abort(name, number)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        name = self._transaction()
        number = self._writing.begin(name) if name else 0
        if name and not number:
            return Staged(name, 0, 0, 0, 0, 0)
        return self._writing.stage(name, number, batches)

    def _commit(self, name: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit a micro-batch, all of whose tasks must have staged in the transaction that has the name now.

        Tasks that found it committed have staged nothing; then there is nothing to do.
        """
        numbers = _numbers(name, messages)
        if numbers == {0}:
            _log.warning(
                "transaction '%s' was committed before: nothing was published now. That is normal for the "
                "first micro-batch after a restart; where more follow, another checkpoint has used this txnAppId",
                name,
            )
            return
        if len(numbers) > 1:
            found = self._writing.begin(name)
            if found:
                raise PreconditionFailed(_over(name, min(numbers)))
            return
        self._writing.commit(name, numbers.pop(), messages)

    def _transaction(self) -> str:
        if self._is_direct:
            return ""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query = self._writing.options.transaction_app_id or context.getLocalProperty(_QUERY)
        batch = context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidRequest(
                f"this Spark does not tell tasks which micro-batch they are of ({_QUERY}, {_BATCH}), so that it cannot "
                "be published exactly once; use foreachBatch with df.write and option txnId, or delivery=at-least-once"
            )
        return f"{query}/{batch}"


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _names(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return sorted({staged.transaction for staged in _staged(messages) if staged.transaction})


def _numbers(name: str, messages: Sequence[WriterCommitMessage | None]) -> set[int]:
    return {staged.number for staged in _staged(messages) if staged.transaction == name}


def _over(transaction: str, number: int) -> str:
    return (
        f"transaction '{transaction}' (number {number}) ended while the job ran: it was aborted, committed by another "
        "job of that name, or its timeout passed (option txnTimeoutMs); run the job again"
    )
