"""What is published: routed in runs where messages are alike, one by one where they are not.

    messages of one method     a a b b b p c b b      a, b: nothing in their properties matters to the broker, but that
    runs                       └─┘ └───┘ │ │ └─┘      b is persistent; p has a priority, c headers with more keys

Properties that say where a message goes, or on which terms, are looked at; all others stay as they came.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from shardmq.errors import PreconditionFailed, ReplyCode
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.session.publish_split import PublishSplitter, terms_of
from shardmq.gateway.state.routes import Route
from shardmq.limits import LIFE_MS_MAX
from shardmq.message.properties import Properties
from shardmq.message.record_batch import AMQP, MANDATORY, PERSISTENT
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp import records as packing
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PublishesReceived
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.property_edits import with_reply_to, without_bcc
from shardmq.protocol.amqp.property_facts import Facts, PropertyLists, read_facts

_lists: Final = PropertyLists()
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 20


class _Way(NamedTuple):
    """How a message goes: those that go the same way may go together."""

    flags: int
    plan: Route
    priority: int = 0
    ttl_ms: int | None = None


def publish(desk: AmqpChannel, event: PublishesReceived) -> None:
    """Send messages on their way. Where something is wrong with one, those before it are.

    Raises:
        RequestError: no such exchange, not permitted, a property that makes no sense.
        AmqpFault: not implemented, or no property list.
    """
    method, session = event.method, desk.channel.session
    if method.immediate:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", method.id)
    hub = session.hub
    hub.changed()
    session.rights.check_write(method.exchange)
    plan = hub.plan(session.vhost, method.exchange, method.routing_key)
    lists, bodies = event.lists, event.bodies
    first = lists[0]
    if plan is not None and lists.count(first) == len(lists):
        facts = _lists.facts(first)
        if facts.is_plain:
            _send(desk, method, _Way(_flags(facts), plan), lists, bodies)
            return
    begin, current = 0, None
    sent: list[bytes] = []
    try:
        for way, raw in _ways(desk, method, plan, lists):
            if way is not current and way != current:
                if current is not None:
                    going, sent = sent, []
                    begin += _send(desk, method, current, going, bodies[begin : begin + len(going)])
                current = way
            sent.append(raw)
    finally:
        if current is not None and sent:
            _send(desk, method, current, sent, bodies[begin : begin + len(sent)])


def _send(desk: AmqpChannel, method: BasicPublish, way: _Way, lists: Sequence[bytes], bodies: Sequence[bytes]) -> int:
    """Send messages that go the same way; returns how many."""
    messages = len(bodies)
    flags = way.flags
    if method.mandatory and desk.transaction is not None:
        flags |= MANDATORY  # whether a queue takes them shows when they are committed
    elif method.mandatory and not way.plan:
        for raw, body in zip(lists, bodies, strict=True):
            desk.connection.send_return_of(desk.number, method.exchange, method.routing_key, raw, body)
    is_alike = lists.count(lists[0]) == messages
    records = packing.pack_alike(lists[0], bodies) if is_alike else packing.pack(lists, bodies)
    first = desk.published + 1
    desk.published += messages
    desk.outlet.send(
        first, method.exchange, method.routing_key, flags, messages, records, way.plan, way.priority, way.ttl_ms
    )
    return messages


def _ways(
    desk: AmqpChannel, method: BasicPublish, plan: Route | None, lists: Sequence[bytes]
) -> Iterator[tuple[_Way, bytes]]:
    """How each message goes, and its property list as it goes: the same objects for neighbours with the same list.

    Args:
        desk: of the channel.
        method: they were published by.
        plan: where they go, as far as their key settles that.
        lists: theirs.
    """
    plain = {} if plan is None else {flags: _Way(flags, plan) for flags in (AMQP, AMQP | PERSISTENT)}
    newest: bytes | None = None
    found: tuple[_Way, bytes]
    for raw in lists:
        if raw is not newest:
            newest = raw
            facts = read_facts(raw)
            if facts.is_plain and plain:
                found = plain[_flags(facts)], raw
            else:
                found = _look_into(desk, method, plan, raw, facts)
        yield found


def _look_into(
    desk: AmqpChannel, method: BasicPublish, plan: Route | None, raw: bytes, facts: Facts
) -> tuple[_Way, bytes]:
    """How a message goes whose properties matter, and its property list as it goes."""
    session = desk.channel.session
    publication = PublishSplitter(
        session.hub, session.vhost, session.user, method.exchange, method.routing_key, may_sort=False
    )
    if facts.is_direct_reply:
        raw = with_reply_to(raw, desk.reply_name(method.id))
    expiration = None if facts.expiration is None else _checked_expiration(facts.expiration)
    if plan is None or facts.has_cc:
        known = msgspec.structs.replace(properties.decode(raw), expiration=expiration)
    else:
        known = Properties(priority=facts.priority, expiration=expiration, user_id=facts.user_id)
    priority, ttl_ms, plan = terms_of(publication, known)
    if facts.has_bcc:
        raw = without_bcc(raw)
    return _Way(_flags(facts), plan, priority, ttl_ms), raw


def _flags(facts: Facts) -> int:
    return AMQP | PERSISTENT if facts.is_persistent else AMQP


def _checked_expiration(text: str) -> str:
    """An expiration as plain digits.

    Raises:
        PreconditionFailed: it is none, in RabbitMQ's words.
    """
    number = _NUMBER.match(text)
    if number is None:
        raise PreconditionFailed(f"invalid expiration '{text}': no_integer")
    if number.end() < len(text):
        rest = text[number.end() :].replace("\\", "\\\\").replace('"', '\\"')
        raise PreconditionFailed(f"invalid expiration '{text}': {{leftover_string,\"{rest}\"}}")
    digits = text.lstrip("+-0") or "0"
    if text.startswith("-") and digits != "0":
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_negative,-{digits}}}")
    if len(digits) > _DIGITS_MAX or int(digits) > LIFE_MS_MAX:
        raise PreconditionFailed(f"invalid expiration '{text}': {{value_too_big,{digits}}}")
    return digits
