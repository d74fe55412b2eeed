"""The options of the data source, each declared once with its uses, type, default and help."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from shardmq.errors import InvalidRequest
from shardmq.limits import DELAY_MS_MAX, NAME_BYTES_MAX, SLICES_MAX

Use = Literal["read", "write", "stream"]
"""What a job does: a batch read, a batch write, a streaming write."""

EXACTLY_ONCE: Final = "exactly-once"
AT_LEAST_ONCE: Final = "at-least-once"

DRAIN_PREFIX: Final = "spark-drain-"
"""The beginning of reservation names that `drain` makes. No other job uses it."""

_WRITES: Final = ("write", "stream")
_ALL: Final = ("read", "write", "stream")
_SPARKS_OWN: Final = {"stream": frozenset({"checkpointlocation", "queryname"})}
"""Options that Spark adds to ours, in small letters."""


def _text(given: str) -> str:
    return given


def _flag(given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise ValueError("write true or false")
    return given.lower() == "true"


def _integer(least: int, most: int) -> Callable[[str], int]:
    def read(given: str) -> int:
        try:
            number = int(given)
        except ValueError:
            raise ValueError("write a whole number") from None
        if not least <= number <= most:
            raise ValueError(f"write {least} to {most}")
        return number

    return read


def _choice(*words: str) -> Callable[[str], str]:
    def read(given: str) -> str:
        if given.lower() not in words:
            raise ValueError(f"write {' or '.join(words)}")
        return given.lower()

    return read


def _name(given: str) -> str:
    if len(given.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"write at most {NAME_BYTES_MAX} bytes")
    return given


def _headers(given: str) -> dict[str, Any]:
    try:
        table = json.loads(given)
    except ValueError as fault:
        raise ValueError(f"write a JSON object ({fault})") from None
    if not isinstance(table, dict):
        raise ValueError('write a JSON object, such as {"source": "spark"}')
    return table


def _option(name: str, uses: tuple[str, ...], read: Callable[[str], Any], default: Any, help: str) -> Any:
    return field(default=default, metadata={"name": name, "uses": uses, "read": read, "help": help})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a job. Each field's metadata are its name in Spark, its uses, its reader and its help."""

    url: str = _option(
        "url", _ALL, _text, "", "Broker, as shardmq://user:password@host:port/vhost; shardmqs:// with TLS. Required."
    )
    timeout_ms: int = _option(
        "timeoutMs",
        _ALL,
        _integer(1000, 24 * 3600 * 1000),
        60_000,
        "How long to try again while the broker, or a part of it, is not there.",
    )

    exchange: str | None = _option("exchange", _WRITES, _name, None, "For rows where the column is null or missing.")
    routing_key: str | None = _option(
        "routing_key", _WRITES, _name, None, "For rows where the column is null or missing."
    )
    delivery: str = _option(
        "delivery",
        _WRITES,
        _choice(EXACTLY_ONCE, AT_LEAST_ONCE),
        EXACTLY_ONCE,
        "exactly-once: staged, and committed with the job. at-least-once: published at once.",
    )
    transaction_id: str | None = _option(
        "txnId", ("write",), _name, None, "Name of the job's transaction: run again, it publishes nothing twice."
    )
    transaction_app_id: str | None = _option(
        "txnAppId",
        ("stream",),
        _name,
        None,
        "Names the stream, in place of the query's id. A new checkpoint counts "
        "batches from 0 again: it needs another name, or its batches pass for committed.",
    )
    transaction_timeout_ms: int = _option(
        "txnTimeoutMs",
        _WRITES,
        _integer(0, DELAY_MS_MAX),
        0,
        "How long it may stay undecided; 0 is the broker's default, a day.",
    )
    is_mandatory: bool = _option("mandatory", _WRITES, _flag, True, "Whether a row that no queue takes fails the job.")
    message_id: str | None = _option(
        "message_id", _WRITES, _text, None, "For rows where the column is null or missing."
    )
    headers: dict[str, Any] | None = _option("headers", _WRITES, _headers, None, "A JSON object, likewise.")  # noqa: RUF009 - it makes a field
    content_type: str | None = _option("content_type", _WRITES, _text, None, "Likewise.")
    content_encoding: str | None = _option("content_encoding", _WRITES, _text, None, "Likewise.")
    delivery_mode: int | None = _option("delivery_mode", _WRITES, _integer(1, 2), None, "1 transient, 2 persistent.")
    priority: int | None = _option("priority", _WRITES, _integer(0, 255), None, "0 to 255.")
    correlation_id: str | None = _option("correlation_id", _WRITES, _text, None, "Likewise.")
    reply_to: str | None = _option("reply_to", _WRITES, _text, None, "Likewise.")
    expiration: str | None = _option("expiration", _WRITES, _text, None, "Milliseconds in a queue, as a string.")
    timestamp: int | None = _option("timestamp", _WRITES, _integer(0, 2**63 - 1), None, "Seconds since 1970.")
    type: str | None = _option("type", _WRITES, _text, None, "The application's name for the kind of message.")
    user_id: str | None = _option("user_id", _WRITES, _text, None, "The publishing user.")
    app_id: str | None = _option("app_id", _WRITES, _text, None, "The publishing application.")
    delay_ms: int = _option(
        "delay_ms", _WRITES, _integer(0, DELAY_MS_MAX), 0, "Milliseconds after which messages join their queues."
    )

    queue: str = _option("queue", ("read",), _name, "", "Queue to read. Required.")
    min_partitions: int = _option(
        "minPartitions", ("read",), _integer(0, SLICES_MAX), 0, "Read in about so many partitions; 0 is 8."
    )
    max_records_per_partition: int = _option(
        "maxRecordsPerPartition",
        ("read",),
        _integer(0, 2**63 - 1),
        0,
        "Messages of a partition at most, about; 0 is no limit.",
    )
    max_records: int = _option(
        "maxRecords", ("read",), _integer(0, 2**63 - 1), 0, "Only the first so many messages; 0 is all of them."
    )
    is_drain: bool = _option(
        "drain", ("read",), _flag, False, "Reserve the messages that are read, to be acknowledged when the job is done."
    )
    drain_id: str = _option("drainId", ("read",), _name, "", "The reservation's name; required with drain.")
    drain_timeout_ms: int = _option(
        "drainTimeoutMs",
        ("read",),
        _integer(0, DELAY_MS_MAX),
        0,
        "Milliseconds after which reserved messages return to their queue; 0 is an hour.",
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


def parse(given: Mapping[str, str], use: Use) -> Options:
    """Read a job's options.

    Args:
        given: values by name; case does not matter, as in Spark.
        use: what the job does.

    Raises:
        InvalidRequest: an option is unknown, not for that use, missing, or has a value that cannot be read.
    """
    values = {}
    for name, value in given.items():
        declared = TABLE.get(name.lower())
        if name.lower() in _SPARKS_OWN.get(use, ()):
            continue
        if declared is None or use not in declared.metadata["uses"]:
            raise InvalidRequest(f"shardmq has no option '{name}' for {_SAID[use]}; there are {', '.join(names(use))}")
        try:
            values[declared.name] = declared.metadata["read"](value)
        except ValueError as fault:
            raise InvalidRequest(f"option {declared.metadata['name']} is '{value}'; {fault}") from None
    options = Options(**values)
    _check(options, use)
    return options


_SAID: Final = {"read": "reading", "write": "writing", "stream": "writing streams"}


def _check(options: Options, use: Use) -> None:
    if not options.url:
        raise InvalidRequest("option url is missing: shardmq://user:password@host:port/vhost of the broker")
    if use == "read" and not options.queue:
        raise InvalidRequest("option queue is missing: the queue to read")
    if options.is_drain and not options.drain_id:
        raise InvalidRequest(
            "option drain needs drainId, a name for the reservation, by which its messages are acknowledged when the "
            "job is done; shardmq.spark.drain(spark, url=…, queue=…) does both"
        )
    if options.drain_id and not options.is_drain:
        raise InvalidRequest("option drainId is for drain=true")
    if options.transaction_id == "":
        raise InvalidRequest("option txnId is empty; leave it out, or give the job's transaction a name")


def new_drain_id() -> str:
    """A name for the reservation of a `drain` without drainId."""
    return f"{DRAIN_PREFIX}{uuid.uuid4()}"


def new_transaction_id() -> str:
    """A name for the transaction of a job without txnId."""
    return f"spark-{uuid.uuid4()}"
