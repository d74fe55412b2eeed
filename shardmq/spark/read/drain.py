"""Draining a queue: its messages are acknowledged when the job that read them is done, and not a moment before.

They are set aside under a name, and stay so for a time that is renewed while a block runs:

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

from shardmq.errors import NotFound, PreconditionFailed, ShardmqError
from shardmq.limits import RESERVATION_MS, SLICES_MAX
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.options import Options, new_drain_id, parse
from shardmq.spark.read.reader import naming

RANGES_MAX: Final = 10_000
"""In one request."""

RENEWALS: Final = 3
"""How often a reservation is renewed within its time."""

_log = logging.getLogger("shardmq.spark")


@contextmanager
def drain(spark: SparkSession, *, schema: StructType | str | None = None, **options: str | int) -> Iterator[DataFrame]:
    """Read what a queue has, and acknowledge it when the block ends; when it raises, all of it is back in its queue.

        with shardmq.spark.read.drain(spark, url="shardmq://…", queue="dead") as df:
            df.write.parquet("dead-2026-11-20")

    The messages are set aside while the block runs, for as long as it takes. Every action on the DataFrame reads the
    same ones, so does every attempt of a task. Those who count on what a block has written have it twice where the
    driver dies between the block's end and the acknowledgement: give drainId a name that the next run has, too, and it
    reads the very same messages again, or none where they were acknowledged.

    A DataFrame is evaluated when something is done with it: do it in the block. Behind it there is nothing to read. A
    block in which Spark has run no job at all has read nothing, and what it has reserved goes back.

    Args:
        spark: the session.
        schema: which columns; all of them when None.
        options: those of reading, by their names in Spark: url, queue, maxRecords, minPartitions, drainId, …

    Yields:
        The messages, as `spark.read.format("shardmq")` gives them.

    Raises:
        InvalidRequest: an option or column that there is not.
        NotFound: no such queue.
        PreconditionFailed: at the end of the block, that nothing was read, and all of it is back; or that the
            reservation had run out or was released: what the block did stands, and the messages will be read again.
        ConnectionLost, Unavailable: the broker, or the queue's shard, is not there.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    given["drain"] = "true"
    given.setdefault("drainid", new_drain_id())
    with suppress(AttributeError):  # a session of Spark Connect does not tell
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
                "shardmq.spark.drain has read them, so they go back: a DataFrame is read when something is done with "
                "it, as write or collect, and that belongs inside the block"
            )
    except BaseException:
        lease.release()
        raise
    lease.acknowledge()


def acknowledge(
    url: str, queue: str, drain_id: str, ranges: Iterable[tuple[int, int]] | None = None, *, timeout: float = 60.0
) -> int:
    """Acknowledge what was read with drain=true, all of it or a part.

    Args:
        url: the broker's.
        queue: which queue.
        drain_id: the reservation, as option drainId had it.
        ranges: of the column position, [first, end), in any order, as `position_ranges` makes them; None is all.
        timeout: seconds to try again while the broker is away.

    Returns:
        How many messages were there to be acknowledged: none, where all had been.

    Raises:
        NotFound: no such queue or reservation: it was released, or ran out.
        ConnectionLost, Unavailable: the broker, or the queue's shard, is not there.
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
    """Return what was reserved with drain=true, and is not acknowledged, to its place in the queue.

    Args:
        As `acknowledge`.

    Returns:
        How many messages.

    Raises:
        As `acknowledge`; that there is no such reservation is none.
    """
    with naming(queue), _closing(BrokerConnection(url, timeout)) as broker:
        return broker.end_reservation(queue, drain_id, False)


def position_ranges(positions: Iterable[int]) -> list[tuple[int, int]]:
    """What `acknowledge` takes, of values of the column position, in any order."""
    return _joined((position, position + 1) for position in positions)


def _jobs(spark: SparkSession) -> int | None:
    """How many jobs Spark has begun so far; None where it does not tell: that is no promise of its, and Connect has
    none of it.
    """
    try:
        jobs: int = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs()
    except Exception as fault:  # noqa: BLE001 - whatever it is, a look that fails is no fault of the job's
        _log.debug("Spark does not tell how many jobs it has begun: %s", fault)
        return None
    return jobs


class _Lease:
    """A reservation, renewed until it is ended; by a thread, on a connection that is that thread's meanwhile.

    Attributes:
        messages: that are reserved.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._seconds = (options.drain_timeout_ms or RESERVATION_MS) / 1000
        self._is_over = threading.Event()
        self._lost = ""
        self._broker = BrokerConnection(options.url, options.timeout)
        try:
            self._renewed = _now()
            messages, state = self._reserve()
        except BaseException:
            self._broker.close()
            raise
        self._is_held = state == "held"
        self.messages = messages if self._is_held else 0
        _log.info("queue '%s': %d messages are reserved as '%s'", options.queue, messages, options.drain_id)
        self._thread = threading.Thread(target=self._keep, name=f"shardmq-lease-{options.drain_id}", daemon=True)
        if self._is_held:
            self._thread.start()

    def acknowledge(self) -> None:
        """What is reserved is done with."""
        options = self._options
        with _closing(self._broker) as broker:
            self._stop()
            if not self._is_held:
                return
            if not self._lost and _now() - self._renewed >= self._seconds:
                self._lost = "could not be renewed in time"
            try:
                if not self._lost:
                    with naming(options.queue):
                        broker.end_reservation(options.queue, options.drain_id, True)
            except NotFound:
                self._lost = "is not there any more: it ran out, or was released"
            if self._lost:
                raise PreconditionFailed(
                    f"queue '{options.queue}': reservation '{options.drain_id}' {self._lost}. What was done with its "
                    "messages stands, but they are in the queue again"
                )

    def release(self) -> None:
        """What is reserved goes back to its place. Where that fails, it does so when its time is over."""
        options = self._options
        with _closing(self._broker) as broker:
            self._stop()
            if not self._is_held:
                return
            try:
                broker.end_reservation(options.queue, options.drain_id, False)
            except ShardmqError as fault:
                _log.warning(
                    "queue '%s': what is reserved as '%s' could not be released, and returns by itself within "
                    "%.0f s: %s",
                    options.queue,
                    options.drain_id,
                    self._seconds,
                    fault,
                )

    def _stop(self) -> None:
        self._is_over.set()
        if self._is_held:
            self._thread.join()

    def _reserve(self) -> tuple[int, str]:
        options = self._options
        return self._broker.reserve(options.queue, options.drain_id, options.max_records, options.drain_timeout_ms)

    def _keep(self) -> None:
        options = self._options
        while not self._is_over.wait(self._seconds / RENEWALS):
            asked = _now()
            try:
                # Reserving what is not reserved any more would set other messages aside, which nobody has read.
                self._broker.slices(options.queue, 1, options.drain_id)
                _, state = self._reserve()
            except NotFound:
                self._lost = "is not there any more: it ran out, or was released"
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
                return  # the block has acknowledged all of it
            if _now() - self._renewed >= self._seconds:
                self._lost = "could not be renewed in time"
                return
            self._renewed = asked
            _log.debug("queue '%s': reservation '%s' is renewed", options.queue, options.drain_id)


def _now() -> float:
    """Seconds that go on while the machine sleeps, where that can be had: the broker's do."""
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
