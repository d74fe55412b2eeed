"""The options of the data source, each declared once with its uses, type, default and help."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from shardmq.errors import InvalidRequest
from shardmq.limits import DELAY_MS_MAX, SLICES_MAX
from shardmq.spark import option_values as values
from shardmq.spark.connection.gateways import NEAREST, SPREAD
from shardmq.spark.option_values import LATEST, OFFSET_MAX, Offsets

Use = Literal["read", "write", "stream", "topic", "readStream"]
"""What a job does: a batch read of a queue, a batch write, a streaming write, a batch read or a stream of topics."""

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

DRAIN_PREFIX: Final = "spark-drain-"
"""The beginning of reservation names that `drain` makes. No other job uses it."""

_WRITES: Final = ("write", "stream")
_BATCHES: Final = ("read", "topic")
_TOPICS: Final = ("topic", "readStream")
_ALL: Final = ("read", "write", "stream", "topic", "readStream")
_SPARKS_OWN: Final = {"stream": frozenset({"checkpointlocation", "queryname"})}
"""Options that Spark adds to ours, in small letters."""


def _option(name: str, uses: tuple[str, ...], read: Callable[[str], Any], default: Any, help: str) -> Any:
    return field(default=default, metadata={"name": name, "uses": uses, "read": read, "help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a job. Each field's metadata are its name in Spark, its uses, its reader and its help."""

    url: str = _option(
        "url",
        _ALL,
        values.text,
        "",
        "Broker, as shardmq://user:password@host:port,host:port/vhost; shardmqs:// with TLS. Required.",
    )
    gateways: str = _option(
        "gateways",
        _ALL,
        values.choice(NEAREST, SPREAD),
        NEAREST,
        "Of several in the url. nearest: tasks take those of their own machine, and share others. spread: all alike.",
    )
    timeout_ms: int = _option(
        "timeoutMs",
        _ALL,
        values.integer(1000, 24 * 3600 * 1000),
        60_000,
        "How long to try again while the broker, or a part of it, is not there.",
    )

    exchange: str | None = _option(
        "exchange", _WRITES, values.name, None, "For rows where the column is null or missing."
    )
    routing_key: str | None = _option(
        "routing_key", _WRITES, values.name, None, "For rows where the column is null or missing."
    )
    delivery: str = _option(
        "delivery",
        _WRITES,
        values.choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        EXACTLY_ONCE,
        "exactly-once: staged, and committed with the job. at-least-once: published at once.",
    )
    transaction_id: str | None = _option(
        "txnId", ("write",), values.name, None, "Name of the job's transaction: run again, it publishes nothing twice."
    )
    transaction_app_id: str | None = _option(
        "txnAppId",
        ("stream",),
        values.name,
        None,
        "Names the stream from its first start on, in place of the query's id. Under another name than before, a "
        "micro-batch that Spark replays is published twice. A new checkpoint counts batches from 0 again: it needs "
        "another name, or its batches pass for committed.",
    )
    transaction_timeout_ms: int = _option(
        "txnTimeoutMs",
        _WRITES,
        values.integer(0, DELAY_MS_MAX),
        0,
        "How long it may stay undecided; 0 is the broker's default, a day.",
    )
    is_mandatory: bool = _option(
        "mandatory", _WRITES, values.flag, True, "Whether a row that no queue takes fails the job."
    )
    message_id: str | None = _option(
        "message_id", _WRITES, values.text, None, "For rows where the column is null or missing."
    )
    headers: dict[str, Any] | None = _option("headers", _WRITES, values.headers, None, "A JSON object, likewise.")  # noqa: RUF009 - it makes a field
    content_type: str | None = _option("content_type", _WRITES, values.text, None, "Likewise.")
    content_encoding: str | None = _option("content_encoding", _WRITES, values.text, None, "Likewise.")
    delivery_mode: int | None = _option(
        "delivery_mode", _WRITES, values.integer(1, 2), None, "1 transient, 2 persistent."
    )
    priority: int | None = _option("priority", _WRITES, values.integer(0, 255), None, "0 to 255.")
    correlation_id: str | None = _option("correlation_id", _WRITES, values.text, None, "Likewise.")
    reply_to: str | None = _option("reply_to", _WRITES, values.text, None, "Likewise.")
    expiration: str | None = _option("expiration", _WRITES, values.text, None, "Milliseconds in a queue, as a string.")
    timestamp: int | None = _option("timestamp", _WRITES, values.integer(0, 2**63 - 1), None, "Seconds since 1970.")
    type: str | None = _option("type", _WRITES, values.text, None, "The application's name for the kind of message.")
    user_id: str | None = _option("user_id", _WRITES, values.text, None, "The publishing user.")
    app_id: str | None = _option("app_id", _WRITES, values.text, None, "The publishing application.")
    delay_ms: int = _option(
        "delay_ms", _WRITES, values.integer(0, DELAY_MS_MAX), 0, "Milliseconds after which messages join their queues."
    )

    queue: str = _option("queue", ("read",), values.name, "", "Queue to read. Required.")
    min_partitions: int = _option(
        "minPartitions",
        ("read", *_TOPICS),
        values.integer(0, SLICES_MAX),
        0,
        "Read in about so many partitions; 0 is 8 for queues, and for topics one for each of theirs.",
    )
    max_records_per_partition: int = _option(
        "maxRecordsPerPartition",
        ("read", *_TOPICS),
        values.integer(0, 2**63 - 1),
        0,
        "Messages of a partition at most, about; 0 is no limit.",
    )
    max_records: int = _option(
        "maxRecords", ("read",), values.integer(0, 2**63 - 1), 0, "Only the first so many messages; 0 is all of them."
    )
    is_drain: bool = _option(
        "drain",
        ("read",),
        values.flag,
        False,
        "Reserve the messages that are read, to be acknowledged when the job is done.",
    )
    drain_id: str = _option("drainId", ("read",), values.name, "", "The reservation's name; required with drain.")
    drain_timeout_ms: int = _option(
        "drainTimeoutMs",
        ("read",),
        values.integer(0, DELAY_MS_MAX),
        0,
        "Milliseconds after which reserved messages return to their queue; 0 is an hour.",
    )

    subscribe: tuple[str, ...] = _option(
        "subscribe", _TOPICS, values.topics, (), "Topics or streams to read, with commas between their names."
    )
    subscribe_pattern: str = _option(
        "subscribePattern",
        _TOPICS,
        values.pattern,
        "",
        "Read every topic or stream that the user may read and whose whole name fits a regular expression.",
    )
    assign: dict[str, tuple[int, ...]] | None = _option(  # noqa: RUF009 - it makes a field
        "assign", _TOPICS, values.partitions, None, 'Partitions to read: {"orders": [0, 1]}.'
    )
    starting_offsets: str | Offsets | None = _option(  # noqa: RUF009
        "startingOffsets",
        _TOPICS,
        values.starting,
        None,
        'earliest (the default of batches), latest (of streams), or offsets: {"orders": {"0": 23, "1": -2}}, where -2 '
        "is earliest and -1 latest. Of a stream it counts where there is no checkpoint.",
    )
    ending_offsets: str | Offsets = _option(  # noqa: RUF009
        "endingOffsets", ("topic",), values.ending, LATEST, "latest, or the offsets behind the last ones to read."
    )
    starting_time: int | None = _option(
        "startingTimestamp",
        _TOPICS,
        values.integer(0, OFFSET_MAX),
        None,
        "Begin with messages of that time, in milliseconds since 1970, or later; before startingOffsets.",
    )
    ending_time: int | None = _option(
        "endingTimestamp",
        ("topic",),
        values.integer(0, OFFSET_MAX),
        None,
        "End before messages of that time, in milliseconds since 1970; before endingOffsets.",
    )
    starting_times: Offsets | None = _option(  # noqa: RUF009
        "startingOffsetsByTimestamp", _TOPICS, values.times, None, "startingTimestamp for each partition."
    )
    ending_times: Offsets | None = _option(  # noqa: RUF009
        "endingOffsetsByTimestamp", ("topic",), values.times, None, "endingTimestamp for each partition."
    )
    late_start: str = _option(
        "startingOffsetsByTimestampStrategy",
        _TOPICS,
        values.choice("error", LATEST),
        "error",
        "Where a partition has no message of the starting time or later: error, or latest to begin at its end.",
    )
    fails_on_loss: bool = _option(
        "failOnDataLoss",
        _TOPICS,
        values.flag,
        True,
        "Whether messages that are gone before they were read fail the job, by retention, damage, or with their topic; "
        "else it goes on behind them.",
    )
    max_offsets: int = _option(
        "maxOffsetsPerTrigger",
        ("readStream",),
        values.integer(0, OFFSET_MAX),
        0,
        "Messages of a micro-batch at most, divided by what each partition has waiting; 0 is no limit.",
    )
    max_bytes: int = _option(
        "maxBytesPerTrigger",
        ("readStream",),
        values.integer(0, OFFSET_MAX),
        0,
        "Bytes of a micro-batch at most, by the average size of each partition's messages; 0 is no limit.",
    )
    min_offsets: int = _option(
        "minOffsetsPerTrigger",
        ("readStream",),
        values.integer(0, OFFSET_MAX),
        0,
        "Wait for so many messages before a micro-batch begins, though no longer than maxTriggerDelay.",
    )
    max_delay_ms: int = _option(
        "maxTriggerDelay", ("readStream",), values.duration_ms, 900_000, "How long minOffsetsPerTrigger waits: 15m."
    )
    has_headers: bool = _option(
        "includeHeaders", _TOPICS, values.flag, False, "Whether there is a column headers, as in Kafka's source."
    )
    group: str = _option(
        "groupId",
        ("readStream",),
        values.name,
        "",
        "A group whose offsets show others how far the stream is. The stream itself goes by its checkpoint.",
    )

    @property
    def timeout(self) -> float:
        """Seconds of timeoutMs."""
        return self.timeout_ms / 1000


TABLE: Final = {declared.metadata["name"].lower(): declared for declared in fields(Options)}
"""Every option by its name in small letters."""


def names(use: Use) -> list[str]:
    """The options for a use, as Spark programs write them."""
    return [declared.metadata["name"] for declared in TABLE.values() if use in declared.metadata["uses"]]


def is_topic(given: Mapping[str, str]) -> bool:
    """Whether options for reading name topics, and not a queue."""
    return bool(_SOURCES & {name.lower() for name in given})


def is_drain(given: Mapping[str, str]) -> bool:
    """Whether options are for reading what is reserved of a queue under a name."""
    return {"queue", "drainid"} <= {name.lower() for name in given} and not is_topic(given)


def parse(given: Mapping[str, str], *uses: Use) -> Options:
    """Read a job's options.

    Args:
        given: values by name; case does not matter, as in Spark.
        uses: what the job does, the likeliest first where that is not known yet.

    Raises:
        InvalidRequest: an option is unknown, not for that use, missing, or has a value that cannot be read.
    """
    found = {}
    for name, value in given.items():
        declared = TABLE.get(name.lower())
        if any(name.lower() in _SPARKS_OWN.get(use, ()) for use in uses):
            continue
        if declared is None or not set(uses) & set(declared.metadata["uses"]):
            there = dict.fromkeys(option for use in uses for option in names(use))
            raise InvalidRequest(f"shardmq has no option '{name}' for {_SAID[uses[0]]}; there are {', '.join(there)}")
        try:
            found[declared.name] = declared.metadata["read"](value)
        except ValueError as fault:
            raise InvalidRequest(f"option {declared.metadata['name']} is '{value}'; {fault}") from None
    options = Options(**found)
    _check(options, uses)
    return options


_SOURCES: Final = frozenset({"subscribe", "subscribepattern", "assign"})
_SAID: Final = {
    "read": "reading",
    "write": "writing",
    "stream": "writing streams",
    "topic": "reading topics",
    "readStream": "reading topics as a stream",
}


def _check(options: Options, uses: tuple[Use, ...]) -> None:
    if not options.url:
        raise InvalidRequest("option url is missing: shardmq://user:password@host:port/vhost of the broker")
    if "read" in uses and not options.queue:
        raise InvalidRequest(
            "option queue is missing: the queue to read; or subscribe, subscribePattern or assign to read topics"
        )
    if uses[0] in _TOPICS:
        _check_topics(options, is_batch=uses == ("topic",))
    if options.is_drain and not options.drain_id:
        raise InvalidRequest(
            "option drain needs drainId, a name for the reservation, by which its messages are acknowledged when the "
            "job is done; shardmq.spark.drain(spark, url=…, queue=…) does both"
        )
    if options.drain_id and not options.is_drain:
        raise InvalidRequest("option drainId is for drain=true")
    if options.transaction_id == "":
        raise InvalidRequest("option txnId is empty; leave it out, or give the job's transaction a name")


def _check_topics(options: Options, *, is_batch: bool) -> None:
    if sum(map(bool, (options.subscribe, options.subscribe_pattern, options.assign))) != 1:
        raise InvalidRequest("give one of the options subscribe, subscribePattern and assign: which topics to read")
    if is_batch and options.starting_offsets == LATEST:
        raise InvalidRequest("option startingOffsets is 'latest'; a batch that begins there has no messages")
    if options.max_offsets and options.min_offsets > options.max_offsets:
        raise InvalidRequest(
            f"option minOffsetsPerTrigger is {options.min_offsets}, above maxOffsetsPerTrigger {options.max_offsets}"
        )


def new_drain_id() -> str:
    """A name for the reservation of a `drain` without drainId."""
    return f"{DRAIN_PREFIX}{uuid.uuid4()}"


def new_transaction_id() -> str:
    """A name for the transaction of a job without txnId."""
    return f"spark-{uuid.uuid4()}"
