"""Sending rows to the broker in one transaction, counted by Spark on their way."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from shardmq.errors import ConnectionFault, PreconditionFailed, RequestError, ShardmqError
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.jobs.outcome import plain_faults
from shardmq.spark.options import EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMAT: Final = "shardmq"


class Sent(NamedTuple):
    """What a send has published.

    Attributes:
        rows: how many.
        bytes: of their bodies.
        is_repeat: whether the transaction had been committed before, so that nothing was done now.
    """

    rows: int
    bytes: int
    is_repeat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """How rows are sent.

    Attributes:
        url: the broker's.
        doing: what the job is doing, as error texts say it: "publishing to exchange 'flights'".
        exchange: the exchange for all rows; None where a column has it.
        txn_id: the transaction's name; "" for none, or for one that the data source names.
        delivery: "exactly-once" or "at-least-once".
        mandatory: whether a row that no queue takes fails the job.
        defaults: more options of the data source.
    """

    url: str
    doing: str
    exchange: str | None = None
    txn_id: str = ""
    delivery: str = EXACTLY_ONCE
    mandatory: bool = True
    defaults: Mapping[str, str] = field(default_factory=dict)

    def for_spark(self) -> dict[str, str]:
        """The same as options of the data source."""
        given = {"url": self.url, "delivery": self.delivery, "mandatory": str(self.mandatory).lower(), **self.defaults}
        given |= {"txnId": self.txn_id} if self.txn_id else {}
        return given | ({"exchange": self.exchange} if self.exchange is not None else {})


@contextlib.contextmanager
def asking(url: str) -> Iterator[BrokerConnection]:
    """A connection for the driver's own requests, closed at the end of the block."""
    broker = BrokerConnection(url)
    try:
        yield broker
    finally:
        broker.close()


def send(rows: "DataFrame", options: SendOptions) -> Sent:
    """Publish rows, in one transaction unless `options.delivery` says otherwise.

    Args:
        rows: with the columns that the data source takes.
        options: how. Where its transaction has been committed before, nothing is read or published.

    Raises:
        ShardmqError: publishing failed. Nothing was published, unless the text says otherwise or the delivery is
            at-least-once.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    number = 0
    if options.txn_id:
        with asking(options.url) as broker:
            number, is_committed = broker.begin(options.txn_id)
        if is_committed:
            return Sent(0, 0, is_repeat=True)
    counts = Observation()
    counted = rows.observe(
        counts, F.count(F.lit(1)).alias("rows"), F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes")
    )
    try:
        with plain_faults(options.doing):
            counted.write.format(FORMAT).options(**options.for_spark()).mode("append").save()
    except BaseException as fault:
        if options.txn_id:
            give_up(options.url, options.txn_id, number, fault)
        raise
    return Sent(int(counts.get["rows"]), int(counts.get["bytes"]))


def give_up(url: str, txn_id: str, number: int, fault: BaseException) -> None:
    """Abort the transaction of a job that failed, but not one that somebody began under its name since.

    Args:
        url: the broker's.
        txn_id: the transaction's name.
        number: the transaction's number.
        fault: what the job failed with; it gets a note where the transaction could not be aborted.

    Raises:
        ShardmqError: of the fault's class: the transaction was committed nevertheless.
    """
    try:
        with asking(url) as broker:
            broker.abort(txn_id, number)
    except PreconditionFailed:
        fault.add_note(f"transaction '{txn_id}' was committed nevertheless: all of it is published")
        if isinstance(fault, ShardmqError):
            text = f"{fault.text}; but transaction '{txn_id}' was committed: running it again publishes nothing more"
            raise fault.with_text(text) from fault
    except (ConnectionFault, RequestError) as gone:
        # An undecided transaction ends by its timeout; the fault itself says more than that the abort failed.
        fault.add_note(f"transaction '{txn_id}' could not be aborted ({gone.text}); it ends by its timeout")


def is_committed(broker: BrokerConnection, name: str) -> bool:
    """Whether a transaction of that name has been committed. An open one is aborted."""
    number, is_done = broker.begin(name)
    if not is_done:
        broker.abort(name, number)
    return is_done


def claim(broker: BrokerConnection, name: str, digest: str, what: str) -> None:
    """Bind a job's name to what the job does, by transactions without messages.

    Args:
        broker: the broker that remembers it.
        name: the job's name.
        digest: of all that makes two jobs the same.
        what: that goes into the digest, for the text of the error.

    Raises:
        PreconditionFailed: the name is bound to another digest.
    """
    any_digest, this_digest = f"{name}/plan", f"{name}/plan/{digest}"
    if is_committed(broker, this_digest):
        return
    if is_committed(broker, any_digest):
        raise PreconditionFailed(f"'{name}' was used with other {what}: give the same, or another name")
    for mark in (any_digest, this_digest):
        number, is_done = broker.begin(mark)
        if not is_done:
            broker.commit(mark, number, [])
