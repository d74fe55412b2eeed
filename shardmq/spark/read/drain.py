"""Draining a queue: its messages are acknowledged when the job that read them is done, and no sooner.

The messages are reserved under a name, for a lease that is renewed while a block runs:

    reserve ─► the block reads and writes ─┬─► acknowledge     it ended
                                           └─► release         it raised
"""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from shardmq.errors import AlreadyAcknowledged, NotFound, PreconditionFailed, ShardmqError
from shardmq.limits import RESERVATION_MS, SLICES_MAX
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.options import Options, new_drain_id, parse
from shardmq.spark.read.reader import naming

RANGES_MAX: Final = 10_000
"""Ranges that one request acknowledges."""

RENEWALS: Final = 3
"""How often a reservation is renewed within its lease."""

_log = logging.getLogger("shardmq.spark")


@contextmanager
def drain(spark: SparkSession, *, schema: StructType | str | None = None, **options: str | int) -> Iterator[DataFrame]:
    """Read a queue's messages, and acknowledge them when the block ends. When it raises, they return to the queue.

        with shardmq.spark.drain(spark, url="shardmq://…", queue="dead") as df:
            df.write.parquet("dead-2026-11-20")

    The messages are reserved for as long as the block runs. Every action on the DataFrame and every attempt of a task
    reads the same ones. A driver that dies between the block's end and the acknowledgement has written them, and the
    next run reads them again: give drainId a name that the next run uses as well, and it reads exactly the same
    messages. Where they were acknowledged, the block does not begin, for as long as the broker remembers the name:
    seven days, and a thousand names of the queue.

    A DataFrame is read when an action runs, so run it inside the block. A block in which Spark ran no job has read
    nothing, and its messages return to the queue.

    Args:
        spark: the session.
        schema: the columns to read; None for all.
        options: options for reading by their names in Spark: url, queue, maxRecords, minPartitions, drainId, …

    Yields:
        The messages, as `spark.read.format("shardmq")` gives them.

    Raises:
        InvalidRequest: an option or a column does not exist.
        NotFound: the queue does not exist.
        AlreadyAcknowledged: an earlier run with this drainId has acknowledged its messages; the block has not begun.
        PreconditionFailed: the block read nothing, and the messages are back; or the reservation ended before the block
            did: what the block did stands, and the messages will be read again.
        ConnectionLost: the broker does not answer.
        Unavailable: the queue's shard is away.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    given["drain"] = "true"
    given.setdefault("drainid", new_drain_id())
    with suppress(AttributeError):  # a session of Spark Connect does not tell it
        given.setdefault("minpartitions", str(min(spark.sparkContext.defaultParallelism, SLICES_MAX)))
    with naming(given.get("queue", "")):
        lease = _Lease(parse(given, "read"))
    try:
        reader = spark.read.format("shardmq").options(**given)
        jobs = _jobs(spark)
        yield (reader if schema is None else reader.schema(schema)).load()
        if lease.messages and jobs is not None and jobs == _jobs(spark):
            raise PreconditionFailed(
                f"queue '{given['queue']}': {lease.messages} messages were reserved, and nothing in the block of "
                "shardmq.spark.drain has read them, so they return to the queue: call an action of the DataFrame, such "
                "as write or collect, inside the block"
            )
    except BaseException:
        lease.release()
        raise
    lease.acknowledge()


def acknowledge(
    url: str, queue: str, drain_id: str, ranges: Iterable[tuple[int, int]] | None = None, *, timeout: float = 60.0
) -> int:
    """Acknowledge messages that were read with drain=true, all or some of them.

    Args:
        url: the broker's.
        queue: the queue's name.
        drain_id: the reservation's name, as given in option drainId.
        ranges: ranges [first, end) of the column position, as `position_ranges` makes them; None for all messages.
        timeout: seconds to try again while the broker is away.

    Returns:
        How many messages were acknowledged; 0 where all had been before.

    Raises:
        NotFound: the queue or the reservation does not exist: it was released, or its lease ended.
        ConnectionLost: the broker does not answer.
        Unavailable: the queue's shard is away.
    """
    with naming(queue), _closing(BrokerConnection(url, timeout)) as broker:
        if ranges is None:
            return broker.end_reservation(queue, drain_id, True)
        joined = _joined(ranges)
        return sum(
            broker.end_reservation(queue, drain_id, True, joined[place : place + RANGES_MAX])
            for place in range(0, len(joined), RANGES_MAX)
        )


def release(url: str, queue: str, drain_id: str, *, timeout: float = 60.0) -> int:
    """Return messages reserved with drain=true that are not acknowledged to their places in the queue.

    Args:
        url: the broker's.
        queue: the queue's name.
        drain_id: the reservation's name, as given in option drainId. One that does not exist is no error.
        timeout: seconds to try again while the broker is away.

    Returns:
        How many messages returned.

    Raises:
        NotFound: the queue does not exist.
        ConnectionLost: the broker does not answer.
        Unavailable: the queue's shard is away.
    """
    with naming(queue), _closing(BrokerConnection(url, timeout)) as broker:
        return broker.end_reservation(queue, drain_id, False)


def position_ranges(positions: Iterable[int]) -> list[tuple[int, int]]:
    """Join values of the column position, in any order, to the ranges that `acknowledge` takes."""
    return _joined((position, position + 1) for position in positions)


def _jobs(spark: SparkSession) -> int | None:
    """How many jobs Spark has begun so far; None where it does not tell, as with Spark Connect."""
    try:
        jobs: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    except Exception as fault:  # noqa: BLE001 - it asks Spark's internals, whose failure must not fail the job
        _log.debug("Spark does not tell how many jobs it has begun: %s", fault)
        return None
    return jobs


class _Lease:
    """A reservation that a thread renews until it is ended. The thread alone uses the connection meanwhile.

    Attributes:
        messages: how many are reserved.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seconds = (options.drain_timeout_ms or RESERVATION_MS) / 1000
        self._is_over = threading.Event()
        self._lost = ""
        self._broker = BrokerConnection(options.url, options.timeout)
        try:
            self._renewed = _now()
            self.messages, state = self._reserve()
            if state != "held":
                raise AlreadyAcknowledged(
                    f"queue '{options.queue}': the messages reserved as '{options.drain_id}' were acknowledged by an "
                    "earlier run, and nothing is left to read; give another drainId for what came since"
                )
        except BaseException:
            self._broker.close()
            raise
        _log.info("queue '%s': %d messages are reserved as '%s'", options.queue, self.messages, options.drain_id)
        self._thread = threading.Thread(target=self._keep, name=f"shardmq-lease-{options.drain_id}", daemon=True)
        self._thread.start()

    def acknowledge(self) -> None:
        """Acknowledge the reserved messages."""
        options = self._options
        with _closing(self._broker) as broker:
            self._stop()
            if not self._lost and _now() - self._renewed >= self._seconds:
                self._lost = "could not be renewed in time"
            try:
                if not self._lost:
                    with naming(options.queue):
                        broker.end_reservation(options.queue, options.drain_id, True)
            except NotFound:
                self._lost = "does not exist any more: its lease ended, or it was released"
            if self._lost:
                raise PreconditionFailed(
                    f"queue '{options.queue}': reservation '{options.drain_id}' {self._lost}. What was done with its "
                    "messages stands, but they are in the queue again"
                )

    def release(self) -> None:
        """Return the reserved messages to the queue. Where that fails, they return when the lease ends."""
        options = self._options
        with _closing(self._broker) as broker:
            self._stop()
            try:
                broker.end_reservation(options.queue, options.drain_id, False)
            except ShardmqError as fault:
                _log.warning(
                    "queue '%s': messages reserved as '%s' could not be released, and return by themselves within "
                    "%.0f s: %s",
                    options.queue,
                    options.drain_id,
                    self._seconds,
                    fault,
                )

    def _stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _reserve(self) -> tuple[int, str]:
        options = self._options
        return self._broker.reserve(options.queue, options.drain_id, options.max_records, options.drain_timeout_ms)

    def _keep(self) -> None:
        options = self._options
        while not self._is_over.wait(self._seconds / RENEWALS):
            asked = _now()
            try:
                # Where the reservation has ended, reserving would take other messages, which nobody has read.
                self._broker.slices(options.queue, 1, options.drain_id)
                _, state = self._reserve()
            except NotFound:
                self._lost = "does not exist any more: its lease ended, or it was released"
                return
            except ShardmqError as fault:
                _log.warning(
                    "queue '%s': reservation '%s' could not be renewed, trying again: %s",
                    options.queue,
                    options.drain_id,
                    fault,
                )
                continue
            if state != "held":
                return  # the block has acknowledged all messages
            if _now() - self._renewed >= self._seconds:
                self._lost = "could not be renewed in time"
                return
            self._renewed = asked
            _log.debug("queue '%s': reservation '%s' is renewed", options.queue, options.drain_id)


def _now() -> float:
    """Steady seconds that, where the system has such a clock, go on while the machine is suspended."""
    clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@contextmanager
def _closing(broker: BrokerConnection) -> Iterator[BrokerConnection]:
    try:
        yield broker
    finally:
        broker.close()


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((first, end))
    return joined


__all__: Sequence[str] = ("acknowledge", "drain", "position_ranges", "release")
