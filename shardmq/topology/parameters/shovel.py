"""What a shovel is given: its settings, their checks, and how they are shown.

The settings are RabbitMQ's for AMQP 0-9-1 (https://www.rabbitmq.com/docs/shovel-dynamic), by their names there.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

import msgspec

from shardmq.errors import InvalidRequest
from shardmq.limits import NAME_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.topology.entities import DEFAULT_VHOST, check_nesting
from shardmq.urls import split_url

SHOVEL: Final = "shovel"
"""The component of parameters that are shovels."""

RUNNER: Final = "amq.shovels"
"""The user as whom the process logs in that runs the shovels of a broker. It has all rights, and no other may log in by
this name."""

RUNNER_SECRET: Final = "SHARDMQ_SHOVELS_SECRET"
"""Environment name of that user's password, which a supervisor makes up anew at each start for its gateways and for
that process."""

SCHEMES: Final = ("amqp", "amqps", "shardmq", "shardmqs")

PROPERTIES: Final = Properties.__struct_fields__
"""Properties that `dest-publish-properties` may set."""

PREFETCH_MAX: Final = 65_535
"""AMQP's field has 16 bits."""

RECONNECT_SECONDS_MAX: Final = 86_400.0

TAKES: Final = {"delete-after": "never, queue-length or a number", "ack-mode": "on-confirm, on-publish or no-ack"}
"""Settings that are one of several words."""

AckMode = Literal["on-confirm", "on-publish", "no-ack"]
DeleteAfter = Literal["never", "queue-length"] | int
Uris = str | list[str]


class _Given(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """The settings by their names, with the older names of some."""

    src_uri: Uris
    dest_uri: Uris
    src_protocol: str = "amqp091"
    dest_protocol: str = "amqp091"
    src_queue: str | None = None
    src_queue_args: dict[str, Any] = {}
    src_consumer_args: dict[str, Any] = {}
    src_exchange: str | None = None
    src_exchange_key: str = ""
    src_prefetch_count: int | None = None
    src_delete_after: DeleteAfter | None = None
    src_predeclared: bool = False
    dest_queue: str | None = None
    dest_queue_args: dict[str, Any] = {}
    dest_exchange: str | None = None
    dest_exchange_key: str | None = None
    dest_publish_properties: dict[str, Any] | None = None
    dest_add_forward_headers: bool | None = None
    dest_add_timestamp_header: bool | None = None
    dest_predeclared: bool = False
    ack_mode: AckMode = "on-confirm"
    reconnect_delay: float = 5.0
    prefetch_count: int | None = None
    delete_after: DeleteAfter | None = None
    publish_properties: dict[str, Any] | None = None
    add_forward_headers: bool | None = None
    add_timestamp_header: bool | None = None


class ShovelEnd(msgspec.Struct, frozen=True):
    """Where a shovel takes messages from, or brings them to.

    Attributes:
        uris: one of them is connected to; the next one where that fails.
        queue: by name; None where it is an exchange.
        queue_arguments: with which the queue is declared where it is missing.
        exchange: by name; None where it is a queue.
        key: of the source, the binding key; of the destination, the routing key, None for the message's own.
        is_predeclared: whether a queue that is missing is waited for, and not declared.
    """

    uris: tuple[str, ...]
    queue: str | None
    queue_arguments: dict[str, Any]
    exchange: str | None
    key: str | None
    is_predeclared: bool = False


class ShovelProgress(msgspec.Struct, frozen=True):
    """How far a shovel is that ends after some messages.

    Attributes:
        left: messages to be moved.
        moved: messages so far.
        batch: the transaction that moves the next ones, which may be committed already; "" for none.
        batch_messages: how many these are; they are not counted in the others yet.
    """

    left: Annotated[int, msgspec.Meta(ge=0)]
    moved: Annotated[int, msgspec.Meta(ge=0)]
    batch: str = ""
    batch_messages: Annotated[int, msgspec.Meta(ge=0)] = 0


class ShovelSettings(msgspec.Struct, frozen=True):
    """A shovel's settings.

    Attributes:
        source: where messages come from.
        destination: where they go.
        prefetch: messages on their way at most.
        consumer_arguments: of the consumer at the source.
        delete_after: the shovel ends, and is deleted, after so many messages, or after as many as the source had when
            it began; "never" otherwise.
        properties: that each message gets, in place of its own.
        has_forward_headers: whether each message gets the header `x-shovelled`, which says where it was.
        has_timestamp_header: whether each gets the header `x-shovelled-timestamp`, in seconds since 1970.
        ack_mode: when the source's message is acknowledged: once the destination has confirmed it, once it is
            published, or before it is delivered.
        reconnect_seconds: pause before the next try; 0 where there is none, and the shovel ends at the first loss.
    """

    source: ShovelEnd
    destination: ShovelEnd
    prefetch: int
    consumer_arguments: dict[str, Any]
    delete_after: DeleteAfter
    properties: dict[str, Any]
    has_forward_headers: bool
    has_timestamp_header: bool
    ack_mode: AckMode
    reconnect_seconds: float


def read_shovel(name: str, value: Mapping[str, Any]) -> ShovelSettings:
    """The settings of a shovel.

    Args:
        name: of the shovel, for errors.
        value: by RabbitMQ's names.

    Raises:
        InvalidRequest: something is missing or makes no sense. No password is in the text.
    """
    thing = f"shovel '{name}'"
    check_nesting(dict(value))
    try:
        given = msgspec.convert(value, _Given)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"{thing}: {_meant(value, str(fault))}") from fault
    for side in ("src", "dest"):
        _check_end(thing, side, given)
    prefetch = _of(given.src_prefetch_count, given.prefetch_count, 1000)
    delete_after = _of(given.src_delete_after, given.delete_after, "never")
    properties = _of(given.dest_publish_properties, given.publish_properties, {})
    _check_values(thing, given, prefetch, delete_after, properties)
    return ShovelSettings(
        ShovelEnd(
            _uris(given.src_uri),
            given.src_queue,
            given.src_queue_args,
            given.src_exchange,
            given.src_exchange_key,
            given.src_predeclared,
        ),
        ShovelEnd(
            _uris(given.dest_uri),
            given.dest_queue,
            given.dest_queue_args,
            given.dest_exchange,
            given.dest_exchange_key,
            given.dest_predeclared,
        ),
        prefetch,
        given.src_consumer_args,
        delete_after,
        properties,
        _of(given.dest_add_forward_headers, given.add_forward_headers, False),
        _of(given.dest_add_timestamp_header, given.add_timestamp_header, False),
        given.ack_mode,
        given.reconnect_delay,
    )


def _meant(value: Mapping[str, Any], fault: str) -> str:
    """What a setting of the wrong type is, in words for people: the setting, and what it takes."""
    setting = fault.rpartition(" - at `$.")[2].removesuffix("`")
    takes = TAKES.get(setting.removeprefix("src-").removeprefix("dest-"))
    return f"{setting} is {value[setting]!r}; give {takes}" if takes else fault


def _check_values(
    thing: str, given: _Given, prefetch: int, delete_after: DeleteAfter, properties: dict[str, Any]
) -> None:
    if not 0 <= prefetch <= PREFETCH_MAX:
        raise InvalidRequest(f"{thing}: src-prefetch-count is {prefetch}; give 0 to {PREFETCH_MAX}")
    if isinstance(delete_after, int) and delete_after < 1:
        raise InvalidRequest(f"{thing}: src-delete-after is {delete_after}; give never, queue-length or 1 and more")
    if delete_after != "never" and given.ack_mode == "no-ack":
        raise InvalidRequest(f"{thing}: src-delete-after needs acknowledgements; give another ack-mode than no-ack")
    if delete_after == "queue-length" and given.src_queue is None:
        raise InvalidRequest(f"{thing}: src-delete-after queue-length needs a src-queue")
    if not 0 <= given.reconnect_delay <= RECONNECT_SECONDS_MAX:
        raise InvalidRequest(f"{thing}: reconnect-delay is {given.reconnect_delay}; give seconds, up to a day")
    unknown = [each for each in properties if each not in PROPERTIES]
    if unknown:
        raise InvalidRequest(f"{thing}: there is no property '{unknown[0]}'; there are {', '.join(PROPERTIES)}")
    try:
        msgspec.convert(properties, Properties)
    except msgspec.ValidationError as fault:
        raise InvalidRequest(f"{thing}: dest-publish-properties: {fault}") from fault


def _of(value: Any, older: Any, default: Any) -> Any:
    """What is given under a name or the older one."""
    return next((each for each in (value, older) if each is not None), default)


def _uris(given: Uris) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_end(thing: str, side: str, given: _Given) -> None:
    protocol = getattr(given, f"{side}_protocol")
    if protocol not in ("amqp091", "shardmq"):
        raise InvalidRequest(f"{thing}: {side}-protocol '{protocol}' is not spoken here; it is amqp091")
    queue, exchange = getattr(given, f"{side}_queue"), getattr(given, f"{side}_exchange")
    if queue is not None and exchange is not None:
        raise InvalidRequest(f"{thing} has {side}-queue and {side}-exchange; give one of them")
    if side == "src" and not queue and not exchange:
        raise InvalidRequest(f"{thing} has no source; give src-queue or src-exchange")
    if queue == "":
        raise InvalidRequest(f"{thing}: {side}-queue is empty; name a queue")
    for name in (queue, exchange):
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"{thing}: '{name[:32]}…' is over {NAME_BYTES_MAX} bytes; choose a shorter name")
    uris = _uris(getattr(given, f"{side}_uri"))
    if not uris:
        raise InvalidRequest(f"{thing} has no {side}-uri; give one, as amqp:// for this broker")
    for uri in uris:
        _check_uri(f"{side}-uri of {thing}", uri)


def _check_uri(thing: str, uri: str) -> None:
    try:
        parts = split_url(uri)
        _ = None if "," in parts.netloc else parts.port
    except ValueError as fault:
        raise InvalidRequest(f"{thing} cannot be read; write it as amqp://user:password@host:port/vhost") from fault
    if parts.scheme not in SCHEMES:
        begins = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(f"{thing} begins with none of {begins}; write it as amqp://user:password@host:port/vhost")


def local_vhost(uri: str) -> str | None:
    """The virtual host of this broker that a URI without a host means; None for a broker somewhere."""
    parts = split_url(uri)
    if parts.netloc.rpartition("@")[2]:
        return None
    return unquote(parts.path[1:]) or DEFAULT_VHOST


def shown_uri(uri: str) -> str:
    """A URI without user, password and files."""
    parts = split_url(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]*@")


def scrubbed(text: str, settings: ShovelSettings) -> str:
    """A text of others, without the passwords of a shovel."""
    for uri in (*settings.source.uris, *settings.destination.uris):
        password = split_url(uri).password
        for word in {password or "", unquote(password or "")} - {""}:
            text = text.replace(word, "…") if len(word) > 3 else text
    return _CREDENTIALS.sub("", text)


def end_facts(side: str, end: ShovelEnd) -> dict[str, Any]:
    """What lists say of an end, in RabbitMQ's words."""
    facts: dict[str, Any] = {f"{side}_uri": shown_uri(end.uris[0]), f"{side}_protocol": "amqp091"}
    if end.queue is not None:
        facts[f"{side}_queue"] = end.queue
    else:
        facts[f"{side}_exchange"] = end.exchange or ""
        facts[f"{side}_exchange_key"] = end.key or ""
    return facts
