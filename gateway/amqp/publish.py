"""Publishes: together where messages are alike, one by one where they are not.

    messages of one method     a a b b b p c b b      a, b: nothing in their properties matters to the broker, but that
    batches                    └─┘ └───┘ │ │ └─┘      b is persistent; p has a priority, c headers with more keys

Properties that say where a message goes, or on which terms, are looked at; all others stay as they came.
"""

import re
from collections.abc import Iterator, Sequence
from random import getrandbits
from typing import Final, NamedTuple

import msgspec

from shardmq.errors import PreconditionFailed, ReplyCode
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.channel_publisher import ChannelPublisher
from shardmq.gateway.session.publish_split import BCC, PublishSplitter, routing_keys
from shardmq.gateway.state.permissions import PlanKey
from shardmq.gateway.state.routes import Route
from shardmq.limits import LIFE_MS_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import pack_raw
from shardmq.message.record_batch import AMQP, MANDATORY, PERSISTENT, RecordBatch
from shardmq.protocol.amqp import properties, records
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PublishesReceived
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.property_edits import with_reply_name, without_bcc
from shardmq.protocol.amqp.property_facts import PLAIN, PLAIN_PERSISTENT, Facts, PropertyLists, read_facts
from shardmq.topology.entities import REPLY_QUEUES

_lists: Final = PropertyLists()
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 20


class _Kind(NamedTuple):
    """How a message goes: neighbours of one kind go together.

    Attributes:
        flags: as they are stored: PERSISTENT, AMQP.
        route: where they go.
        priority: of each.
        ttl_ms: as in `RecordBatch`.
        bcc: routing keys that consumers do not see.
    """

    flags: int
    route: Route
    priority: int = 0
    ttl_ms: int | None = None
    bcc: tuple[str, ...] = ()


_ASKING: Final = Facts(is_persistent=False, is_plain=False, is_direct_reply=True)
"""A request for a direct reply, of which nothing else matters to the broker."""

LISTS_PLANNED_MAX: Final = 64
"""Property lists of neighbours that are looked up before any of them is sent; where more differ, each is looked at."""

PLANS_MAX: Final = 131_072
"""Plans remembered for each user and virtual host, 250 bytes each, beside routes; past it all are forgotten."""


def publish(channel: AmqpChannel, event: PublishesReceived) -> None:
    """Route messages and send them on. Where something is wrong with one, those before it are.

    Raises:
        RequestError: no such exchange, not permitted, a property that makes no sense.
        AmqpError: not implemented, or no property list.
    """
    state = channel.client.state
    state.traffic.sizes.noted += map(len, event.bodies)
    is_traced = state.firehose is not None  # what is traced goes no planned way
    if event.methods is not None:
        publisher = channel.publisher
        if is_traced or not isinstance(publisher, ChannelPublisher):
            for method, raw, body in zip(event.methods, event.lists, event.bodies, strict=True):
                _publish_alike(channel, PublishesReceived(channel.number, method, [raw], [body]))
        else:
            _publish_mixed(channel, publisher, event, event.methods)
    elif is_traced or len(event.bodies) > 1 or not _publish_one(channel, event):
        _publish_alike(channel, event)


def _publish_one(channel: AmqpChannel, event: PublishesReceived) -> bool:
    """Send on a message that came alone: it goes as the one before, as a rule, whatever its other properties.

    At 1,000 messages a second nothing joins neighbours, and what is looked up for each of them is most of its price.

    Returns:
        Whether there is nothing more to it than that it goes to one shard; where there is, nothing was done.
    """
    publisher, method = channel.publisher, event.method
    if type(publisher) is not ChannelPublisher or method.routing_key.startswith(REPLY_QUEUES):
        return False
    channel.client.state.changed()
    (raw,), (body,) = event.lists, event.bodies
    facts = _lists.facts(raw)
    if facts is PLAIN_PERSISTENT or facts is PLAIN:
        known = id(method), facts.is_persistent
    elif facts == _ASKING:
        known, raw = (id(method), False), with_reply_name(raw, channel.reply_name(method.id))
    else:
        return False
    planned = channel.client.permissions.plans.get(known) or _plan(channel, method, raw, known)
    if planned is None:
        return False
    link, plan, _ = planned
    channel.published += 1
    if link.publish_planned(publisher, channel.published, plan, pack_raw(raw, body)):
        channel.outbox.hold_publishing(link)
    return True


def _publish_mixed(
    channel: AmqpChannel, publisher: ChannelPublisher, event: PublishesReceived, methods: Sequence[BasicPublish]
) -> None:
    """Send on messages that were published by several methods in turn."""
    channel.client.state.changed()
    known = channel.client.permissions.plans.get
    packed = records.pack_each(event.lists, event.bodies)
    if event.turn and _publish_in_turn(channel, publisher, event, methods):
        return
    for method, raw, body, record in zip(methods, event.lists, event.bodies, packed, strict=True):
        key = id(method), raw
        planned = known(key) or _plan(channel, method, raw, key)
        if planned is None:
            _publish_alike(channel, PublishesReceived(channel.number, method, [raw], [body]))
            continue
        link, plan, _ = planned
        channel.published += 1
        if link.publish_planned(publisher, channel.published, plan, record):
            channel.outbox.hold_publishing(link)


def _publish_in_turn(
    channel: AmqpChannel, publisher: ChannelPublisher, event: PublishesReceived, methods: Sequence[BasicPublish]
) -> bool:
    """Send on messages that go to different queues in turn, those of each queue together.

    Returns:
        Whether they are such, and it is known how they go; where not, nothing was done.
    """
    turn, plans = event.turn, channel.client.permissions.plans
    ways = [plans.get((id(method), raw)) for method, raw in zip(methods[:turn], event.lists, strict=False)]
    known = [way for way in ways if way is not None and way[1].is_single]
    if len({plan.place for _, plan, _ in known}) < turn:
        return False
    packed = list(records.pack_each(event.lists, event.bodies))
    first = channel.published + 1
    channel.published += len(packed)
    for place, (link, plan, _) in enumerate(known):
        numbers = range(first + place, channel.published + 1, turn)
        if link.publish_run(publisher, numbers, plan, packed[place::turn]):
            channel.outbox.hold_publishing(link)
    return True


def _publish_prioritized(channel: AmqpChannel, event: PublishesReceived) -> bool:
    """Send on messages whose properties mean nothing to the broker but for a priority.

    Returns:
        Whether they are such; where not, nothing was done.
    """
    publisher, method = channel.publisher, event.method
    different = set(event.lists)
    if len(different) > LISTS_PLANNED_MAX or not isinstance(publisher, ChannelPublisher):
        return False
    known = channel.client.permissions.plans.get
    try:
        plans = {raw: known((id(method), raw)) or _plan(channel, method, raw, (id(method), raw)) for raw in different}
    except AmqpError:  # those before it are sent first
        return False
    if None in plans.values():
        return False
    for raw, record in zip(event.lists, records.pack_each(event.lists, event.bodies), strict=True):
        planned = plans[raw]
        assert planned is not None
        link, plan, _ = planned
        channel.published += 1
        if link.publish_planned(publisher, channel.published, plan, record):
            channel.outbox.hold_publishing(link)
    return True


def _plan(
    channel: AmqpChannel, method: BasicPublish, raw: bytes, key: PlanKey
) -> tuple[ShardLink, PublishPlan, BasicPublish] | None:
    """How messages with this property list go; None where there is more to it than that they go to one shard.

    Args:
        channel: they are published on.
        method: they are published by.
        raw: the list.
        key: under which that is remembered.

    Raises:
        RequestError: no such exchange, not permitted.
        AmqpError: no property list.
    """
    client = channel.client
    client.permissions.check_write(method.exchange)
    client.permissions.check_topic("write", method.exchange, method.routing_key)
    route = client.state.find_route(client.vhost, method.exchange, method.routing_key)
    facts = _lists.facts(raw)
    if method.immediate or route is None or route.turns is not None or len(route) != 1:
        return None
    if route.replies or not _has_priority_alone(facts):
        return None
    ((link, queues),) = route
    priority = min(facts.priority or 0, route.levels)
    plan = client.state.routes.plan(queues, method.exchange, method.routing_key, _flags(facts), priority)
    plans = client.permissions.plans
    if len(plans) >= PLANS_MAX:
        plans.clear()
    planned = plans[key] = link, plan, method
    return planned


def _publish_alike(channel: AmqpChannel, event: PublishesReceived) -> None:
    """Send on messages that were published by the same method."""
    method, client = event.method, channel.client
    if method.immediate:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", method.id)
    state = client.state
    state.changed()
    client.permissions.check_write(method.exchange)
    client.permissions.check_topic("write", method.exchange, method.routing_key)
    route = state.find_route(client.vhost, method.exchange, method.routing_key)
    if route is not None and route.turns is not None:
        route = route.turns.take()
    lists, bodies = event.lists, event.bodies
    first = lists[0]
    if route is not None and lists.count(first) == len(lists):
        facts = _lists.facts(first)
        if facts.is_plain:
            _send(channel, method, _Kind(_flags(facts), route), lists, bodies)
            return
    may_be_planned = route is not None and route.levels and state.firehose is None
    if may_be_planned and _publish_prioritized(channel, event):
        return
    begin, current = 0, None
    sent: list[bytes] = []
    try:
        for kind, raw in _kinds(channel, method, route, lists):
            if kind is not current and kind != current:
                if current is not None:
                    going, sent = sent, []
                    begin += _send(channel, method, current, going, bodies[begin : begin + len(going)])
                current = kind
            sent.append(raw)
    finally:
        if current is not None and sent:
            _send(channel, method, current, sent, bodies[begin : begin + len(sent)])


def _send(
    channel: AmqpChannel, method: BasicPublish, kind: _Kind, lists: Sequence[bytes], bodies: Sequence[bytes]
) -> int:
    """Send messages of one kind; returns how many."""
    messages = len(bodies)
    flags = kind.flags
    if method.mandatory and channel.transaction is not None:
        flags |= MANDATORY  # whether a queue takes them shows when they are committed
    elif method.mandatory and not kind.route:
        channel.session_channel.publisher.returned += messages
        for raw, body in zip(lists, bodies, strict=True):
            channel.outbox.send_content_return(channel.number, method.exchange, method.routing_key, raw, body)
    is_alike = lists.count(lists[0]) == messages
    packed = records.pack_alike(lists[0], bodies) if is_alike else records.pack(lists, bodies)
    first = channel.published + 1
    channel.published += messages
    batch = RecordBatch(
        method.exchange, method.routing_key, flags, 0, 0, 0, messages, packed, kind.priority, kind.ttl_ms
    )
    client = channel.client
    if client.state.firehose is not None:
        if kind.bcc:
            client.state.changed()
            client.state.stamp(batch)  # copies of deliveries are told of these keys by the messages' ids
        client.state.firehose.published(client, channel.number, batch, kind.route, kind.bcc)
    channel.publisher.send(first, batch, kind.route)
    return messages


def _kinds(
    channel: AmqpChannel, method: BasicPublish, route: Route | None, lists: Sequence[bytes]
) -> Iterator[tuple[_Kind, bytes]]:
    """How each message goes, and its property list as it goes: the same objects for neighbours with the same list.

    Args:
        channel: they were published on.
        method: they were published by.
        route: where they go, as far as their key settles that.
        lists: theirs.
    """
    plain = {} if route is None else {flags: _Kind(flags, route) for flags in (AMQP, AMQP | PERSISTENT)}
    newest: bytes | None = None
    found: tuple[_Kind, bytes]
    for raw in lists:
        if raw is not newest:
            newest = raw
            facts = read_facts(raw)
            if facts.is_plain and plain:
                found = plain[_flags(facts)], raw
            else:
                found = _look_into(channel, method, route, raw, facts)
        yield found


def _look_into(
    channel: AmqpChannel, method: BasicPublish, route: Route | None, raw: bytes, facts: Facts
) -> tuple[_Kind, bytes]:
    """How a message goes whose properties matter, and its property list as it goes."""
    client = channel.client
    splitter = PublishSplitter(
        client.state,
        client.state.routes,
        client.vhost,
        client.user,
        method.exchange,
        method.routing_key,
        False,
        getrandbits(32),
    )
    if facts.is_direct_reply:
        raw = with_reply_name(raw, channel.reply_name(method.id))
    expiration = None if facts.expiration is None else _checked_expiration(facts.expiration)
    if route is None or facts.has_cc:
        known = msgspec.structs.replace(properties.decode(raw), expiration=expiration)
    else:
        known = Properties(priority=facts.priority, expiration=expiration, user_id=facts.user_id)
    priority, ttl_ms, other = splitter.key_of(known)
    if route is None or facts.has_cc:
        route = other
    bcc: tuple[str, ...] = ()
    if facts.has_bcc:
        raw, bcc = without_bcc(raw), tuple(routing_keys(known.headers or {}, BCC))
    return _Kind(_flags(facts), route, priority, ttl_ms, bcc), raw


def _has_priority_alone(facts: Facts) -> bool:
    """Whether a priority is all that a property list has for the broker, or nothing is."""
    return facts.is_plain or facts == Facts(facts.is_persistent, is_plain=False, priority=facts.priority)


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
