"""Rows on their way to the broker, in one transaction, counted by Spark as they go."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from shardmq.errors import ConnectionFault, PreconditionFailed, RequestError, ShardmqError
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.options import EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMAT: Final = "shardmq"


class Sent(NamedTuple):
    """What came of it.

    Attributes:
        rows: published.
        bytes: of their values.
        is_repeat: whether the transaction was committed before, and nothing was done now.
    """

    rows: int
    bytes: int
    is_repeat: bool = False


@contextlib.contextmanager
def asking(url: str) -> Iterator[BrokerConnection]:
    """A connection for the driver's own questions."""
    broker = BrokerConnection(url)
    try:
        yield broker
    finally:
        broker.close()


def send(
    rows: "DataFrame",
    *,
    url: str,
    doing: str,
    exchange: str | None = None,
    txn_id: str = "",
    delivery: str = EXACTLY_ONCE,
    mandatory: bool = True,
    options: Mapping[str, str] | None = None,
) -> Sent:
    """Publish rows, in one transaction unless `delivery` says otherwise.

    Args:
        rows: with the columns that the data source takes.
        url: the broker's.
        doing: what is done, for the sentence of an error.
        exchange: for all rows; None where there is a column.
        txn_id: the transaction's name; where it was committed before, nothing is read or published.
        delivery: "exactly-once" or "at-least-once".
        mandatory: a row that no queue takes fails the job.
        options: more of the data source's for writing.

    Raises:
        ShardmqError: it failed; nothing was published, unless the text says otherwise, or delivery is at-least-once.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    number = 0
    if txn_id:
        with asking(url) as broker:
            number, is_done = broker.begin(txn_id)
        if is_done:
            return Sent(0, 0, is_repeat=True)
    said = {"url": url, "delivery": delivery, "mandatory": str(mandatory).lower(), **(options or {})}
    said |= {"txnId": txn_id} if txn_id else {}
    said |= {"exchange": exchange} if exchange is not None else {}
    counts = Observation()
    counted = rows.observe(
        counts, F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes")
    )
    try:
        with plain_faults(doing):
            counted.write.format(FORMAT).options(**said).mode("append").save()
    except BaseException as fault:
        if txn_id:
            give_up(url, txn_id, number, fault)
        raise
    return Sent(int(counts.get["rows"]), int(counts.get["bytes"]))


def give_up(url: str, txn_id: str, number: int, fault: BaseException) -> None:
    """Abort what failed, and not what somebody has begun under its name since; the fault is told what became of it
    where that is not plain.
    """
    try:
        with asking(url) as broker:
            broker.abort(txn_id, number)
    except PreconditionFailed:
        fault.add_note(f"transaction '{txn_id}' was committed nevertheless: all of it is published")
        if isinstance(fault, ShardmqError):
            said = f"{fault.text}; but transaction '{txn_id}' was committed: running it again does nothing more"
            raise fault.with_text(said) from fault
    except (ConnectionFault, RequestError) as gone:
        # What is undecided ends by its timeout; the fault itself says more than that nobody could be told.
        fault.add_note(f"transaction '{txn_id}' could not be aborted ({gone.text}); it ends by its timeout")


def put_back(url: str, queue: str, reservation: str, fault: BaseException) -> None:
    """Return what a job that failed had set aside; the fault is told where that fails."""
    try:
        with asking(url) as broker:
            broker.end_reservation(queue, reservation, False)
    except (ConnectionFault, RequestError) as gone:
        # The reservation ends by its time; the fault itself says more than that nobody could be told.
        fault.add_note(f"what is set aside under '{reservation}' could not be put back ({gone.text})")


def is_committed(broker: BrokerConnection, name: str) -> bool:
    """Whether a transaction of that name is committed. One that is open is aborted."""
    number, is_done = broker.begin(name)
    if not is_done:
        broker.abort(name, number)
    return is_done


def claim(broker: BrokerConnection, name: str, digest: str, what: str) -> None:
    """Make a name stand for one thing that is to be done once, by transactions without messages.

    Args:
        broker: whose.
        name: the name.
        digest: of what is to be done.
        what: that makes it the same, for the sentence of the error.

    Raises:
        PreconditionFailed: it stands for something else.
    """
    any_of_it, exactly = f"{name}/plan", f"{name}/plan/{digest}"
    if is_committed(broker, exactly):
        return
    if is_committed(broker, any_of_it):
        raise PreconditionFailed(f"'{name}' was used with other {what}: give the same, or another name")
    for mark in (any_of_it, exactly):
        number, is_done = broker.begin(mark)
        if not is_done:
            broker.commit(mark, number, [])
