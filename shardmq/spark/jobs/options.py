"""The keywords of the jobs: one frozen value for each job, with each option declared once."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from shardmq.errors import InvalidRequest
from shardmq.spark.option_values import EARLIEST, LATEST
from shardmq.spark.options import EXACTLY_ONCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

By = Literal["date", "hour"]

LEASE_MS: Final = 24 * 3600 * 1000
"""How long messages stay reserved for a job, in milliseconds. It is longer than jobs take: what a job has written
must be acknowledged before the messages return to their queue."""

Say = Callable[[str], None]
Progress = Callable[[int, int], None]

_P = ParamSpec("_P")
_Subject = TypeVar("_Subject")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")
_Job = Callable[["SparkSession", _Subject, _Options], _Result]
_PublicJob = Callable[Concatenate["SparkSession", _Subject, _P], _Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """Options of `publish`.

    Attributes:
        url: the broker, as shardmq://user:password@host:port/vhost.
        exchange: the exchange to publish to. With "", the default exchange, the routing key names the queue.
        format: "csv", "tsv", "json" or "parquet"; None to tell by the files' names.
        read_options: Spark's options for reading that format, such as {"inferSchema": "true"}. Without it every
            column of a CSV file is text.
        key: a column, or a template such as "{carrier}.{origin}", that makes the routing keys.
        routing_key: one routing key for all rows, in place of `key`.
        value: the column that is the body; None for the whole row as a JSON object, nulls included.
        headers: a template for each header, by the header's name.
        message_id: a column or a template.
        properties: properties of all messages, such as {"content_type": "text/csv", "priority": "3"}. The content
            type is application/json unless it is given here or a column is the body.
        partitions: how many partitions publish; None for as many as the files have.
        txn_id: the transaction's name. A job run again under the same name publishes nothing twice. "" makes a new
            name.
        delivery: "exactly-once"; or "at-least-once", where messages are visible at once and again with each retry.
        mandatory: whether a row that no queue takes fails the job.
        say: called with a sentence about what goes on.
    """

    url: str
    exchange: str
    format: str | None = None
    read_options: Mapping[str, str] | None = None
    key: str | None = None
    routing_key: str | None = None
    value: str | None = None
    headers: Mapping[str, str] | None = None
    message_id: str | None = None
    properties: Mapping[str, str] | None = None
    partitions: int | None = None
    txn_id: str = ""
    delivery: str = EXACTLY_ONCE
    mandatory: bool = True
    say: Say = print


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of `export`.

    Attributes:
        to: the folder to write to, as Spark takes it.
        url: the broker, as shardmq://user:password@host:port/vhost.
        drain: acknowledge the messages once they are written.
        by: "date" for folders date=YYYY-MM-DD; "hour" for folders hour=H inside them.
        append: add to what is in the folder. With `drain` that is always so.
        max_records: export only the first so many messages; 0 for all of them.
        partitions: about how many files are written at once; 0 for Spark's parallelism.
        lease_ms: with `drain`, the milliseconds after which the messages return to their queue.
        say: called with a sentence about what goes on.
    """

    to: str
    _: KW_ONLY
    url: str
    drain: bool = False
    by: By = "date"
    append: bool = False
    max_records: int = 0
    partitions: int = 0
    lease_ms: int = LEASE_MS
    say: Say = print


@dataclass(frozen=True, slots=True)
class TopicExportOptions:
    """Options of `export_topic`.

    Attributes:
        to: the folder to write to, as Spark takes it.
        url: the broker, as shardmq://user:password@host:port/vhost.
        by: "date" for folders date=YYYY-MM-DD; "hour" for folders hour=H inside them.
        starting_offsets: where the first export begins: "earliest", "latest", or offsets as the data source takes them.
        partitions: about how many files are written at once; 0 for one for each of the topic's partitions.
        fails_on_loss: whether the export fails for messages that were dropped since the last one; else it says so.
    """

    to: str
    _: KW_ONLY
    url: str
    by: By = "date"
    starting_offsets: str = EARLIEST
    partitions: int = 0
    fails_on_loss: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of `replay`.

    Attributes:
        url: the broker, as shardmq://user:password@host:port/vhost.
        exchange: the exchange for all messages; "" is the default exchange.
        keep_exchange: publish each message to the exchange it was published to before.
        rate: rows a second at most; None for no limit. Rows appear in chunks of some seconds' worth.
        txn_id: the replay's name. "" makes one from the files' paths and sizes and the target, so that the same
            replay has the same name. The broker remembers the names of committed chunks for seven days.
        mandatory: whether a message that no queue takes fails its chunk.
        say: called with a sentence about what goes on.
        progress: called with how many rows are done, and how many there are.
    """

    url: str
    exchange: str | None = None
    keep_exchange: bool = False
    rate: float | None = None
    txn_id: str = ""
    mandatory: bool = True
    say: Say = print
    progress: Progress = lambda _done, _all: None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReplayOptions(ReplayOptions):
    """Options of `replay_topic`.

    Attributes:
        url: the broker, as shardmq://user:password@host:port/vhost.
        exchange: the exchange for all messages; "" is the default exchange.
        keep_exchange: publish each message to the exchange it was published to before.
        rate: rows a second at most; None for no limit. Rows appear in chunks of some seconds' worth.
        txn_id: the replay's name. "" makes one from the offsets and the target, so that the same replay has the same
            name. The broker remembers the names of committed chunks for seven days.
        mandatory: whether a message that no queue takes fails its chunk.
        say: called with a sentence about what goes on.
        progress: called with how many rows are done, and how many there are.
        starting_offsets: "earliest", or offsets as the data source takes them.
        ending_offsets: "latest", or offsets as the data source takes them.
        since: only messages that came then or later, in place of `starting_offsets`; a time without a zone is this
            machine's.
        until: only those that came before, in place of `ending_offsets`.
    """

    starting_offsets: str = EARLIEST
    ending_offsets: str = LATEST
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """Options of `deadletters`.

    Attributes:
        url: the broker, as shardmq://user:password@host:port/vhost.
        reason: only dead letters of this reason, such as "rejected".
        from_queue: only those that died in this queue.
        from_exchange: only those that had been published to this exchange.
        since: only those that died then or later; a time without a zone is this machine's.
        until: only those that died before.
        republish: publish them to the exchange and routing keys of their latest death, in one transaction, and take
            them off the queue. Messages without x-death stay.
        limit: republish so many at most, the first ones of the queue.
        keep: republish them, and leave them in the queue as well.
        dry_run: say what would be republished, and do nothing.
        txn_id: the name of a republishing. Given again after a crash, nothing is published twice and the rest is
            done. "" makes a new name, which `say` is told.
        lease_ms: the milliseconds after which reserved messages return to the queue; nobody else gets them before.
        say: called with a sentence about what goes on.
    """

    url: str
    reason: str | None = None
    from_queue: str | None = None
    from_exchange: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    republish: bool = False
    limit: int | None = None
    keep: bool = False
    dry_run: bool = False
    txn_id: str = ""
    lease_ms: int = LEASE_MS
    say: Say = print


def check_session(spark: object, job: str) -> None:
    """Check that a session has Spark's driver in this process, as jobs need it.

    Raises:
        InvalidRequest: it is one of Spark Connect.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        raise InvalidRequest(
            f"shardmq.spark.{job} needs Spark's driver in this process, and with Spark Connect it is elsewhere: "
            'use a session of SparkSession.builder.master(…), or the command `shardmq spark`. format("shardmq") and '
            "shardmq.spark.drain work with Spark Connect"
        )


def takes_keywords(
    options: Callable[_P, _Options],
) -> Callable[[_Job[_Subject, _Options, _Result]], _PublicJob[_Subject, _P, _Result]]:
    """Make a job of (session, subject, options) a function that takes the options as keywords.

    Args:
        options: the class of the options. Its fields become the function's keywords, and end its docstring.
    """

    def decorate(job: _Job[_Subject, _Options, _Result]) -> _PublicJob[_Subject, _P, _Result]:
        positional = list(inspect.signature(job).parameters.values())[:2]
        keywords = inspect.signature(options)
        signature = inspect.Signature([*positional, *keywords.parameters.values()])

        @functools.wraps(job)
        def run(*given: Any, **named: Any) -> _Result:
            bound = signature.bind(*given, **named).arguments
            spark, subject = (bound.pop(parameter.name) for parameter in positional)
            check_session(spark, job.__name__)
            return job(spark, subject, options(**bound))  # type: ignore[call-arg]  # bound to their own signature

        run.__signature__ = signature  # type: ignore[attr-defined]
        fields = (inspect.getdoc(options) or "").partition("Attributes:")[2]
        run.__doc__ = f"{inspect.getdoc(job)}\n\nKeywords:{fields}"
        return run

    return decorate
