"""What died of what, counted; and chosen dead letters published again, then taken off their queue.

    reserve ─► choose ─► publish, one transaction ─► acknowledge exactly those ─► the rest back to its place
                                    │
                 a crash behind it: run again under the same name, it is found committed; only the end is left

A message keeps its x-death when it goes back, as with RabbitMQ's shovel and "move messages": how often it has died is
known when it dies again. The property expiration, which died with it (x-death has it as original-expiration), does not
come back: it would at once die again.
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed, Unavailable
from shardmq.spark.jobs import preconditions as targets
from shardmq.spark.jobs.death_columns import Choice, deaths, republished
from shardmq.spark.jobs.export import LEASE_MS
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.jobs.replay import with_id
from shardmq.spark.jobs.summary import Summary
from shardmq.spark.jobs.transaction import FORMAT, Sent, asking, claim, is_committed, put_back, send

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from shardmq.spark.connection.broker import BrokerConnection

LOOK: Final = "headers map<string,string>, timestamp timestamp, position long"
WHOLE: Final = (
    "body binary, message_id string, properties struct<message_id: string>, headers map<string,string>, "
    "timestamp timestamp, position long, raw_properties binary"
)
"""Columns: a job reads only what it needs."""

RANGES: Final = 5_000
"""Acknowledged by one request: it has to fit into a frame."""

RESERVE_TRIES: Final = 8
"""How often a reservation is made anew, because what was chosen in it is over the limit."""


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters that have most in common.

    Attributes:
        reason: that they died of; None where there is no x-death.
        queue: where they died.
        exchange: to which they had been published.
        hour: in which they died (UTC), its begin; None where that is not known.
        count: how many.
        oldest: when the first of them came to the queue where they are now.
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
    """What dead letters there are, and what was done with them.

    Attributes:
        groups: of those that were chosen, by reason, queue, exchange and hour.
        summary: of the job.
    """

    groups: tuple[Group, ...]
    summary: Summary

    def as_table(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {**self.summary.as_table(), "groups": [asdict(group) for group in self.groups]}


def deadletters(
    spark: "SparkSession",
    queue: str,
    *,
    url: str,
    reason: str | None = None,
    from_queue: str | None = None,
    from_exchange: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    republish: bool = False,
    limit: int | None = None,
    keep: bool = False,
    dry_run: bool = False,
    txn_id: str = "",
    lease_ms: int = LEASE_MS,
    say: Callable[[str], None] = print,
) -> Report:
    """Count a queue's dead letters by reason, queue, exchange and hour; publish chosen ones again.

    Args:
        spark: the session.
        queue: where the dead letters lie.
        url: the broker's.
        reason: only those that died of it, as "rejected".
        from_queue: only those that died there.
        from_exchange: only those that had been published to it.
        since: only those that died then or later; without a time zone it is this machine's.
        until: only those that died before.
        republish: publish them to the exchange and routing keys of their latest death, in one transaction, and take
            them off the queue. Those without x-death stay.
        limit: republish so many at most, those that are first in the queue.
        keep: republish, but leave them in the queue, too.
        dry_run: say what would be done.
        txn_id: a name for it. Given again after a crash, what is published is not published again, and what is left is
            done; it is told by `say`, and a new one when "".
        lease_ms: for so long the queue's messages are set aside at most; nobody else gets them meanwhile.
        say: is told what goes on, a sentence at a time.

    Raises:
        NotFound: there is no such queue, or an exchange is gone: then nothing was published.
        Unroutable: no queue takes one of them any more: then nothing was published.
        PreconditionFailed: they were published, but had come back to their queue before they could be taken off it.
        ShardmqError: it failed.
    """
    started_at = time.monotonic()
    if (limit is not None or keep or dry_run or txn_id) and not republish:
        raise InvalidRequest("a limit, keep, a dry run and a name are for dead letters that are published again")
    choice = Choice(reason=reason, from_queue=from_queue, from_exchange=from_exchange, since=since, until=until)
    targets.ready(url, queue)
    doing = f"dead letters of queue '{queue}'"
    groups: Sequence[Group] = ()
    notes: list[str] = []
    sent, taken, name = Sent(0, 0), 0, ""
    with plain_faults(doing):
        if not republish or dry_run:
            groups = grouped(look(spark, url, queue).where(choice.condition()))
            count = sum(group.count for group in groups if not republish or group.reason is not None)
            sent = Sent(count if limit is None else min(count, limit), 0)
        else:
            name = txn_id or f"deadletters-{uuid.uuid4()}"
            say(f"republishing as '{name}': after a crash run it again with that name")
            job = _Republishing(spark, url, queue, name, choice, limit, lease_ms)
            sent, taken = job.copy() if keep else job.move()
            groups = job.groups
            if sent.is_repeat:
                notes.append(f"transaction '{name}' was committed before: nothing was published now")
                say(notes[-1])
    return Report(
        tuple(groups),
        Summary(
            job="deadletters",
            rows=max(sent.rows, taken),
            messages=0 if dry_run or not republish else sent.rows,
            bytes=sent.bytes,
            seconds=time.monotonic() - started_at,
            transaction=name,
            queues={queue: targets.ready(url, queue)},
            notes=tuple(notes),
        ),
    )


def look(
    spark: "SparkSession", url: str, queue: str, columns: str = LOOK, reservation: str = "", lease_ms: int = LEASE_MS
) -> "DataFrame":
    """A queue's messages with what is known of their deaths: those that are ready, or set aside under a name."""
    options = {"url": url, "queue": queue, "minPartitions": str(spark.sparkContext.defaultParallelism)}
    if reservation:
        options |= {"drain": "true", "drainId": reservation, "drainTimeoutMs": str(lease_ms)}
    return deaths(spark.read.format(FORMAT).schema(columns).options(**options).load())


def grouped(messages: "DataFrame") -> tuple[Group, ...]:
    """Dead letters counted."""
    from pyspark.sql import functions as F

    hour = F.date_trunc("hour", F.col("died_at"))
    counted = (
        messages.groupBy("reason", "from_queue", "from_exchange", hour.alias("hour"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            # As numbers: a timestamp would be told in the session's time zone.
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
    """Chosen dead letters on their way back."""

    def __init__(
        self,
        spark: "SparkSession",
        url: str,
        queue: str,
        name: str,
        choice: Choice,
        limit: int | None,
        lease_ms: int,
    ) -> None:
        self._spark = spark
        self._url = url
        self._queue = queue
        self._name = name
        self._choice = choice
        self._limit = limit
        self._lease_ms = lease_ms
        self.groups: tuple[Group, ...] = ()

    def copy(self) -> tuple[Sent, int]:
        """Publish them, and leave the queue as it is: (what was published, 0)."""
        self._claim()
        return self._publish(""), 0

    def move(self) -> tuple[Sent, int]:
        """Publish them and take them off the queue: (what was published, how many were taken off)."""
        self._claim()
        with asking(self._url) as broker:
            if is_committed(broker, self._name):
                self._check_there(broker)
                return Sent(0, 0, is_repeat=True), self._finish(broker)
            try:
                self._reserve(broker)
                sent = self._publish(self._name)
            except BaseException as fault:
                put_back(self._url, self._queue, self._name, fault)
                raise
            return sent, self._finish(broker)

    def _claim(self) -> None:
        digest = hashlib.sha256(repr((self._queue, self._choice, self._limit)).encode()).hexdigest()[:20]
        with asking(self._url) as broker:
            claim(broker, self._name, digest, "queue, choice or limit")

    def _reserve(self, broker: "BrokerConnection") -> None:
        """Set aside as many of the queue's first messages as hold those that are wanted, and no more: then all that is
        chosen of the reservation is published and acknowledged, also by whoever finishes it later.

        Raises:
            PreconditionFailed: the name was used before.
            Unavailable: the queue changes too fast for the limit.
        """
        messages_max = 0 if self._limit is None else self._depth(self._limit)
        for _ in range(RESERVE_TRIES):
            _, state = broker.reserve(self._queue, self._name, messages_max, self._lease_ms)
            if state == "acknowledged":
                raise PreconditionFailed(f"all that was set aside as '{self._name}' is done with; give another name")
            if self._limit is None:
                return
            count = self._chosen(LOOK, self._name).count()
            if count <= self._limit:
                return
            # Others have taken some from among them, so that more of those behind came along.
            held = broker.end_reservation(self._queue, self._name, False)
            messages_max = max(1, held * self._limit // count)
        raise Unavailable(f"queue '{self._queue}' changes too fast to take {self._limit} from it; try again")

    def _depth(self, limit: int) -> int:
        """How many of the queue's first messages hold so many chosen ones; 0, for all, where they hold fewer."""
        from pyspark.sql import functions as F

        last = self._last("", limit)
        if last is None:
            return 0
        return look(self._spark, self._url, self._queue, LOOK).where(F.col("position") <= last).count()

    def _last(self, reservation: str, limit: int) -> int | None:
        """The position of the chosen message of that number; None where there are not so many."""
        from pyspark.sql import functions as F

        first = self._chosen(LOOK, reservation).select("position").orderBy("position").limit(limit)
        found = first.agg(F.max("position").alias("last"), F.count(F.lit(1)).alias("count")).first()
        assert found is not None
        last: int | None = found["last"] if found["count"] == limit else None
        return last

    def _publish(self, reservation: str) -> Sent:
        """Publish what is chosen: of a reservation all, of the queue as it is now up to the limit."""
        from pyspark.sql import functions as F

        last = self._last("", self._limit) if self._limit is not None and not reservation else None
        wanted = F.lit(True) if last is None else F.col("position") <= last
        self.groups = grouped(self._chosen(LOOK, reservation).where(wanted))
        chosen = self._chosen(WHOLE, reservation).where(wanted)
        rows = republished(chosen, with_id(chosen))
        return send(rows, url=self._url, doing=f"republishing from queue '{self._queue}'", txn_id=self._name)

    def _chosen(self, columns: str, reservation: str) -> "DataFrame":
        from pyspark.sql import functions as F

        condition = self._choice.condition() & F.col("reason").isNotNull() & F.col("from_exchange").isNotNull()
        return look(self._spark, self._url, self._queue, columns, reservation, self._lease_ms).where(condition)

    def _finish(self, broker: "BrokerConnection") -> int:
        """Take what was published off the queue, put the rest back; returns how many were taken off."""
        taken = 0
        found = ranges(self._chosen(LOOK, self._name))
        for start in range(0, len(found), RANGES):
            taken += broker.end_reservation(self._queue, self._name, True, found[start : start + RANGES])
        broker.end_reservation(self._queue, self._name, False)
        return taken

    def _check_there(self, broker: "BrokerConnection") -> None:
        """Make sure that what is reserved is what was published: no new reservation under the old name."""
        try:
            broker.slices(self._queue, 1, self._name)
        except NotFound as fault:
            raise PreconditionFailed(
                f"'{self._name}' is committed, and nothing is set aside under it any more: either all of it was done, "
                f"or its messages came back to queue '{self._queue}' when its time was over, and are there twice"
            ) from fault


def ranges(messages: "DataFrame") -> list[tuple[int, int]]:
    """The positions of messages as ranges [first, end), rising."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    # Numbered in order, what follows without a gap has the same difference.
    numbered = messages.select("position", F.row_number().over(Window.orderBy("position")).alias("number"))
    runs = numbered.groupBy(F.col("position") - F.col("number")).agg(
        F.min("position").alias("first"), F.max("position").alias("last")
    )
    return [(row["first"], row["last"] + 1) for row in runs.orderBy("first").select("first", "last").collect()]


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _known(microseconds)


def _known(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
