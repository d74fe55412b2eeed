"""What is published: routed in runs where messages are alike, one by one where they are not."""

from typing import Final

from shardmq.errors import ReplyCode
from shardmq.gateway.amqp import properties
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.faults import AmqpFault
from shardmq.gateway.amqp.frames import Published
from shardmq.gateway.amqp.properties import PropertyLists
from shardmq.gateway.publishing import Publication, terms_of
from shardmq.records import AMQP, PERSISTENT, pack_raw

NO_ROUTE: Final = "NO_ROUTE"
_lists: Final = PropertyLists()


def publish(desk: AmqpChannel, event: Published) -> None:
    """Send messages on their way.

    Raises:
        RequestError: no such exchange, not permitted, a property that makes no sense.
        AmqpFault: not implemented, or no property list.
    """
    method, channel = event.method, desk.channel
    session = channel.session
    if method.immediate:
        raise AmqpFault(ReplyCode.NOT_IMPLEMENTED, "immediate=true", method.id)
    session.hub.changed()
    session.rights.check_write(method.exchange)
    publication = Publication(
        session.hub, session.vhost, session.user, method.exchange, method.routing_key, may_sort=False
    )
    for raw, body in event.contents:
        facts = _lists.facts(raw)
        if facts.is_direct_reply:
            raw = properties.with_reply_to(raw, desk.reply_name(method.id))
        plan = session.hub.plan(session.vhost, method.exchange, method.routing_key)
        priority, ttl_ms = 0, None
        if plan is None or not facts.is_plain:
            priority, ttl_ms, plan = terms_of(publication, properties.decode(raw))
        desk.published += 1
        flags = AMQP | PERSISTENT if facts.is_persistent else AMQP
        if not plan and method.mandatory:
            desk.send_back(method, raw, body)
        desk.outlet.send(desk.published, method.exchange, method.routing_key, flags, 1, pack_raw(raw, body), plan,
                         priority, ttl_ms)  # fmt: skip
