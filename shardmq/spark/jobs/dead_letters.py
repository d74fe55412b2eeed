"""Dead letters counted by what they died of; chosen ones published again, then taken off their queue.

    reserve ─► choose ─► publish, one transaction ─► acknowledge exactly those ─► put the rest back
                                    │
                 after a crash behind it: run again under the same name; the transaction is found
                 committed, and only the acknowledging is left

A republished message keeps its x-death, as with RabbitMQ's shovel, so that the count goes on when it dies again. It
loses its property expiration, of which it would die again at once (x-death has it as original-expiration).
"""

import hashlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import ConnectionFault, InvalidRequest, NotFound, PreconditionFailed, RequestError, Unavailable
from shardmq.spark.jobs import preconditions
from shardmq.spark.jobs.death_columns import DeadLetterFilter, deaths, republished
from shardmq.spark.jobs.options import LEASE_MS, DeadLetterOptions, takes_keywords
from shardmq.spark.jobs.outcome import Summary, plain_faults
from shardmq.spark.jobs.replay import with_id
from shardmq.spark.jobs.transaction import FORMAT, SendOptions, Sent, asking, claim, is_committed, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shardmq.spark.connection.broker import BrokerConnection

LOOK: Final = "headers map<string,string>, timestamp timestamp, position long"
WHOLE: Final = (
    "body binary, message_id string, properties struct<message_id: string>, headers map<string,string>, "
    "timestamp timestamp, position long, raw_properties binary"
)
"""Columns to read: LOOK for counting and choosing, WHOLE for republishing."""

RANGES: Final = 5_000
"""Ranges that one request acknowledges: the request has to fit into a frame."""

RESERVE_TRIES: Final = 8
"""How often a reservation is made again because more than the limit was chosen in it."""


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters that died of the same, in the same queue, in the same hour.

    Attributes:
        reason: what they died of; None where there is no x-death.
        queue: where they died.
        exchange: the exchange they had been published to.
        hour: the beginning of the hour in which they died (UTC); None where it is not known.
        count: how many there are.
        oldest: when the first of them came to the dead-letter queue.
        newest: when the last of them came.
    """

    reason: str | None
    queue: str | None
    exchange: str | None
    hour: datetime | None
    count: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class Report:
    """Which dead letters there are, and what was done with them.

    Attributes:
        groups: the chosen ones by reason, queue, exchange and hour.
        summary: what the job did.
    """

    groups: tuple[Group, ...]
    summary: Summary

    def as_table(self) -> dict[str, Any]:
        """The report as a table for JSON."""
        return {**self.summary.as_table(), "groups": [asdict(group) for group in self.groups]}


@takes_keywords(DeadLetterOptions)
def deadletters(spark: "SparkSession", queue: str, options: DeadLetterOptions) -> Report:
    """Count a queue's dead letters by reason, queue, exchange and hour; publish chosen ones again.

    Args:
        spark: the session.
        queue: where the dead letters lie.
        options: see Keywords.

    Raises:
        NotFound: the queue does not exist; or an exchange does not, and nothing was published.
        Unroutable: no queue takes one of them any more, and nothing was published.
        PreconditionFailed: they were published, but returned to their queue before they could be acknowledged.
        ShardmqError: it failed. Where dead letters are still reserved, a note tells the name that finishes it.
    """
    started_at = time.monotonic()
    _check(options)
    preconditions.ready(options.url, queue)
    notes: list[str] = []
    name, taken = "", 0
    with plain_faults(f"dead letters of queue '{queue}'"):
        if not options.republish or options.dry_run:
            groups: Sequence[Group] = grouped(look(spark, options.url, queue).where(_choice(options).condition()))
            count = sum(group.count for group in groups if not options.republish or group.reason is not None)
            sent = Sent(count if options.limit is None else min(count, options.limit), 0)
        else:
            name = options.txn_id or f"deadletters-{uuid.uuid4()}"
            options.say(f"republishing as '{name}': after a crash run it again with that name")
            republishing = _Republishing(spark, queue, name, options)
            sent, taken = republishing.copy() if options.keep else republishing.move()
            groups = republishing.groups
            if sent.is_repeat:
                notes.append(f"transaction '{name}' was committed before: nothing was published now")
                options.say(notes[-1])
    summary = Summary(
        job="deadletters",
        rows=max(sent.rows, taken),
        messages=sent.rows if name else 0,
        bytes=sent.bytes,
        seconds=time.monotonic() - started_at,
        transaction=name,
        queues={queue: preconditions.ready(options.url, queue)},
        notes=tuple(notes),
    )
    return Report(tuple(groups), summary)


def _check(options: DeadLetterOptions) -> None:
    if (options.limit is not None or options.keep or options.dry_run or options.txn_id) and not options.republish:
        raise InvalidRequest("limit, keep, dry_run and txn_id are for republish=True alone")


def _choice(options: DeadLetterOptions) -> DeadLetterFilter:
    return DeadLetterFilter(
        reason=options.reason,
        from_queue=options.from_queue,
        from_exchange=options.from_exchange,
        since=options.since,
        until=options.until,
    )


def look(
    spark: "SparkSession", url: str, queue: str, columns: str = LOOK, reservation: str = "", lease_ms: int = LEASE_MS
) -> "DataFrame":
    """A queue's messages with the columns of their latest death.

    Args:
        spark: the session.
        url: the broker's.
        queue: the queue's name.
        columns: the schema to read.
        reservation: read the messages reserved under this name; "" for those that are ready.
        lease_ms: milliseconds that the reservation lasts.
    """
    options = {"url": url, "queue": queue, "minPartitions": str(spark.sparkContext.defaultParallelism)}
    if reservation:
        options |= {"drain": "true", "drainId": reservation, "drainTimeoutMs": str(lease_ms)}
    return deaths(spark.read.format(FORMAT).schema(columns).options(**options).load())


def grouped(messages: "DataFrame") -> tuple[Group, ...]:
    """Count dead letters by reason, queue, exchange and hour."""
    from pyspark.sql import functions as F

    hour = F.date_trunc("hour", F.col("died_at"))
    counted = (
        messages.groupBy("reason", "from_queue", "from_exchange", hour.alias("hour"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            # Numbers, as collect() gives timestamps in the session's time zone.
            F.unix_micros(F.min("timestamp")).alias("oldest"),
            F.unix_micros(F.max("timestamp")).alias("newest"),
        )
        .select(
            "reason", "from_queue", "from_exchange", F.unix_micros("hour").alias("hour"), "count", "oldest", "newest"
        )
        .orderBy("reason", "from_queue", "from_exchange", "hour")
    )
    return tuple(
        Group(
            row["reason"],
            row["from_queue"],
            row["from_exchange"],
            _moment(row["hour"]),
            row["count"],
            _known(row["oldest"]),
            _known(row["newest"]),
        )
        for row in counted.collect()
    )


class _Republishing:
    """The republishing of chosen dead letters.

    Attributes:
        groups: what was chosen, counted.
    """

    def __init__(self, spark: "SparkSession", queue: str, name: str, options: DeadLetterOptions) -> None:
        self._spark = spark
        self._url = options.url
        self._queue = queue
        self._name = name
        self._choice = _choice(options)
        self._limit = options.limit
        self._lease_ms = options.lease_ms
        self.groups: tuple[Group, ...] = ()

    def copy(self) -> tuple[Sent, int]:
        """Publish them and leave the queue as it is; returns what was published, and 0."""
        self._claim()
        return self._publish(""), 0

    def move(self) -> tuple[Sent, int]:
        """Publish them and take them off the queue; returns what was published, and how many were taken off."""
        self._claim()
        with asking(self._url) as broker:
            if is_committed(broker, self._name):
                return Sent(0, 0, is_repeat=True), self._finish(broker)
            try:
                self._reserve(broker)
                sent = self._publish(self._name)
            except BaseException as fault:
                self._put_back(fault)
                raise
            return sent, self._finish(broker)

    def _put_back(self, fault: BaseException) -> None:
        """Return the reserved messages to their queue, unless they were published nevertheless.

        Where they were, or that cannot be found out, they stay reserved for another run to finish it; the fault gets a
        note.
        """
        try:
            with asking(self._url) as broker:
                if not is_committed(broker, self._name):
                    broker.end_reservation(self._queue, self._name, False)
                    return
            self._leave(fault, "they are published")
        except (ConnectionFault, RequestError) as gone:
            self._leave(fault, f"they could not be put back ({gone.text})")

    def _leave(self, fault: BaseException, why: str) -> None:
        """Note that the reservation is there for another run."""
        fault.add_note(
            f"dead letters of queue '{self._queue}' are still reserved as '{self._name}', as {why}: run it again with "
            "that name, which finishes it and publishes nothing twice"
        )

    def _claim(self) -> None:
        # The broker keeps digests of names for days, so the text must outlive the class's name.
        choice = repr(self._choice).replace(DeadLetterFilter.__name__, "Choice", 1)
        text = f"({self._queue!r}, {choice}, {self._limit!r})"
        digest = hashlib.sha256(text.encode()).hexdigest()[:20]
        with asking(self._url) as broker:
            claim(broker, self._name, digest, "queue, choice or limit")

    def _reserve(self, broker: "BrokerConnection") -> None:
        """Reserve as many of the queue's first messages as contain the wanted ones, and no more.

        Then whatever the filter chooses in the reservation is published and acknowledged, also by a later run that
        finishes this one.

        Raises:
            PreconditionFailed: the name was used before.
            Unavailable: the queue changes too fast for the limit.
        """
        messages_max = 0 if self._limit is None else self._depth(self._limit)
        for _ in range(RESERVE_TRIES):
            _, state = broker.reserve(self._queue, self._name, messages_max, self._lease_ms)
            if state == "acknowledged":
                raise PreconditionFailed(f"the messages reserved as '{self._name}' are acknowledged; give another name")
            if self._limit is None:
                return
            count = self._chosen(LOOK, self._name).count()
            if count <= self._limit:
                return
            # Consumers took some of the first messages, so the reservation reaches further back.
            held = broker.end_reservation(self._queue, self._name, False)
            messages_max = max(1, held * self._limit // count)
        raise Unavailable(f"queue '{self._queue}' changes too fast to take {self._limit} from it; try again")

    def _depth(self, limit: int) -> int:
        """How many of the queue's first messages contain `limit` chosen ones; 0, for all, where the queue has fewer."""
        from pyspark.sql import functions as F

        last = self._last("", limit)
        if last is None:
            return 0
        return look(self._spark, self._url, self._queue, LOOK).where(F.col("position") <= last).count()

    def _last(self, reservation: str, limit: int) -> int | None:
        """The position of the last of the first `limit` chosen messages; None where there are fewer."""
        from pyspark.sql import functions as F

        first = self._chosen(LOOK, reservation).select("position").orderBy("position").limit(limit)
        found = first.agg(F.max("position").alias("last"), F.count(F.lit(1)).alias("count")).first()
        assert found is not None
        last: int | None = found["last"] if found["count"] == limit else None
        return last

    def _publish(self, reservation: str) -> Sent:
        """Publish the chosen messages: all of a reservation, or up to the limit of those that are ready."""
        from pyspark.sql import functions as F

        last = self._last("", self._limit) if self._limit is not None and not reservation else None
        wanted = F.lit(True) if last is None else F.col("position") <= last
        self.groups = grouped(self._chosen(LOOK, reservation).where(wanted))
        chosen = self._chosen(WHOLE, reservation).where(wanted)
        rows = republished(chosen, with_id(chosen))
        doing = f"republishing from queue '{self._queue}'"
        return send(rows, SendOptions(url=self._url, doing=doing, txn_id=self._name))

    def _chosen(self, columns: str, reservation: str) -> "DataFrame":
        from pyspark.sql import functions as F

        condition = self._choice.condition() & F.col("reason").isNotNull() & F.col("from_exchange").isNotNull()
        return look(self._spark, self._url, self._queue, columns, reservation, self._lease_ms).where(condition)

    def _finish(self, broker: "BrokerConnection") -> int:
        """Acknowledge what was published, put the rest back; returns how many were acknowledged.

        Raises:
            PreconditionFailed: the reservation does not exist any more.
        """
        taken = 0
        try:
            found = ranges(self._chosen(LOOK, self._name)) if self._has_some(broker) else []
            for start in range(0, len(found), RANGES):
                taken += broker.end_reservation(self._queue, self._name, True, found[start : start + RANGES])
            broker.end_reservation(self._queue, self._name, False)
        except PreconditionFailed:
            raise  # nothing is reserved any more
        except BaseException as fault:
            self._leave(fault, "they are published")
            raise
        return taken

    def _has_some(self, broker: "BrokerConnection") -> bool:
        """Whether anything is left of what a committed republishing has reserved.

        Raises:
            PreconditionFailed: the reservation does not exist any more: a new one would hold other messages.
        """
        try:
            return bool(broker.slices(self._queue, 1, self._name))
        except NotFound as fault:
            raise PreconditionFailed(
                f"transaction '{self._name}' is committed, and its reservation is gone: either all of it was done, or "
                f"the lease ended first, and the messages returned to queue '{self._queue}' after they were republished"
            ) from fault


def ranges(messages: "DataFrame") -> list[tuple[int, int]]:
    """The positions of messages as rising ranges [first, end)."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Position minus row number is the same for neighbours without a gap.
    numbered = messages.select("position", F.row_number().over(Window.orderBy("position")).alias("number"))
    ranges_found = numbered.groupBy(F.col("position") - F.col("number")).agg(
        F.min("position").alias("first"), F.max("position").alias("last")
    )
    return [(row["first"], row["last"] + 1) for row in ranges_found.orderBy("first").select("first", "last").collect()]


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _known(microseconds)


def _known(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
