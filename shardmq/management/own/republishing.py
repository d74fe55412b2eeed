"""A changed copy of a message that was looked at, published; the original stays, or goes when the copy is confirmed."""

from typing import Any, Final, Literal

import msgspec

from shardmq.management.api.exchanges import exchange_name
from shardmq.management.api.messages import CLUSTER_ID, payload_in, properties_in
from shardmq.management.republishing import Change, replace, republish
from shardmq.management.web.body import flag, number, table, text
from shardmq.management.web.call import LARGE_BYTES_MAX, Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.message.properties import Properties

FIELDS: Final = frozenset(Properties.__struct_fields__)


def _patched(patch: Row, original: Properties, user: str) -> Properties:
    """The properties with what is given in place of what was there; null removes, and `headers` likewise by name.

    Raises:
        ApiError: they make no sense.
    """
    given = {name: value for name, value in patch.items() if value is not None and name != CLUSTER_ID}
    removed = {name for name in patch if patch[name] is None} - {CLUSTER_ID}
    if unknown := removed - FIELDS:
        raise ApiError.bad_request(f"there is no property '{min(unknown):.40}'; there are {', '.join(sorted(FIELDS))}")
    headers = given.pop("headers", None)
    wanted = properties_in(given)
    changes: Row = dict.fromkeys(removed) | {name: getattr(wanted, name) for name in given}
    if headers is not None:
        merged = {**(original.headers or {}), **table(patch, "headers")}
        changes["headers"] = {name: value for name, value in merged.items() if value is not None} or None
    if original.user_id != user:
        changes.setdefault("user_id", None)  # the broker takes nobody's name but the publisher's
    return msgspec.structs.replace(original, **changes)


def _change(call: Call, body: Row) -> Change:
    patch = table(body, "properties") if body.get("properties") is not None else {}
    exchange = text(body, "exchange") if body.get("exchange") is not None else None
    _patched(patch, Properties(), call.user)  # what makes no sense is told before anything is looked for
    return Change(
        lambda original: _patched(patch, original, call.user),
        None if exchange is None else exchange_name(exchange),
        text(body, "routing_key") if body.get("routing_key") is not None else None,
        payload_in(body) if body.get("payload") is not None else None,
    )


def _position(body: Row) -> int:
    position = number(body, "position")
    if not 0 <= position < 2**63 - 1:
        raise ApiError.bad_request(f"position is {position}; give the one of a message that was looked at")
    return position


async def republish_of_queue(call: Call) -> Answer:
    """Publish a changed copy of a message of a queue."""
    vhost, queue, body = await call.vhost(), call.part("queue"), await call.body()
    change, position, removes = _change(call, body), _position(body), flag(body, "remove")
    message_id = text(body, "id", "")
    channel = await call.channel(vhost, own=True)
    try:
        if removes:
            async with call.facts.moving(vhost, queue, call.user):
                is_routed = await replace(channel, queue, position, change, call.user, message_id)
        else:
            is_routed = await republish(channel, queue, position, change, message_id=message_id)
    finally:
        await channel.close()
    return Answer({"routed": is_routed, "removed": removes and is_routed})


async def republish_of_topic(call: Call) -> Answer:
    """Publish a changed copy of a message of a topic, which keeps the original."""
    vhost, topic, body = await call.vhost(), call.part("topic"), await call.body()
    if flag(body, "remove"):
        raise ApiError.bad_request("a topic keeps its messages; leave remove out")
    change, position, message_id = _change(call, body), _position(body), text(body, "id", "")
    channel = await call.channel(vhost, own=True)
    try:
        is_routed = await republish(channel, topic, position, change, number(body, "partition", 0), message_id)
    finally:
        await channel.close()
    return Answer({"routed": is_routed, "removed": False})


class RepublishBody(msgspec.Struct):
    """Which message is copied, and what is different; what is not given is as in the original."""

    position: int
    exchange: str | None = None
    routing_key: str | None = None
    payload: str | None = None
    payload_encoding: Literal["string", "base64"] = "string"
    properties: Row | None = None
    remove: bool = False
    id: str = ""
    partition: int = 0


def _endpoint(path: str, handler: Any) -> Endpoint:
    return Endpoint(
        "POST",
        path,
        handler,
        Right.MANAGEMENT,
        "Publish a changed copy of a message.",
        Row,
        body=RepublishBody,
        body_bytes_max=LARGE_BYTES_MAX,
    )


ENDPOINTS: Final = (
    _endpoint("/shardmq/queues/{vhost}/{queue}/republish", republish_of_queue),
    _endpoint("/shardmq/topics/{vhost}/{topic}/republish", republish_of_topic),
)
"""What this file answers."""
