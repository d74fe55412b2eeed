"""Direct reply-to: a queue of answers that exists for one consumer, and that nobody declares.

    requester                                                      responder, anywhere
    consume amq.rabbitmq.reply-to.<token>, auto_ack: makes it      consumes the queue of requests
    publish, reply_to: amq.rabbitmq.reply-to.<token>  ──────────►
    deliver  ◄──────────────────────────────────────────────────  publish to "", key amq.rabbitmq.reply-to.<token>

AMQP clients have the same queues (`amqp/direct_reply.py`), so the responder may speak either protocol. Here the client
makes the token up, and knows the name before it asks: it has the same name again after a reconnect, and its messages
need not be rewritten. The queue is transient, exclusive to the connection, and goes with its consumer. No permission is
needed to have it: its name, which nobody guesses, is what makes an answer welcome.
"""

from typing import Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.errors import InvalidRequest, NotAllowed, NotFound, PreconditionFailed, RequestError
from shardmq.gateway.session.channel import Channel
from shardmq.protocol.native.operations.basic import BasicConsume
from shardmq.topology.commands import DeclareQueue, DeleteQueue
from shardmq.topology.entities import REPLY_QUEUES

TOKEN_CHARACTERS_MIN: Final = 22
"""128 random bits in base64: a shorter token might be guessed."""

BEGINNING: Final = ""
"""The tag of a channel's consumer of answers until it has begun."""


def is_reply_name(queue: str) -> bool:
    """Whether a queue's name is one that this module answers for."""
    return queue.startswith(REPLY_QUEUES)


def _takes_answers(channel: Channel) -> bool:
    """Whether a channel takes answers, or is about to. Its consumer's tag may be another one's by now."""
    tag = channel.reply_consumer
    if not tag:
        return tag == BEGINNING
    consumer = channel.consumers.by_tag.get(tag)
    return consumer is not None and consumer.takes_replies


def consume(channel: Channel, operation: BasicConsume, reply: Reply) -> None:
    """Make the queue of answers, and begin to take them.

    Raises:
        PreconditionFailed: with acknowledgements, or the channel takes answers already.
        InvalidRequest: the token is too short.
    """
    client, name, tag = channel.client, operation.queue, operation.consumer
    if not operation.auto_ack:
        raise PreconditionFailed("answers are not acknowledged; consume them with auto_ack")
    if len(name) - len(REPLY_QUEUES) < TOKEN_CHARACTERS_MIN:
        raise InvalidRequest(f"the token behind '{REPLY_QUEUES}' has {TOKEN_CHARACTERS_MIN} random characters or more")
    if _takes_answers(channel):
        raise PreconditionFailed(f"channel {channel.number} takes answers already; all its calls may share the queue")
    channel.reply_consumer = BEGINNING

    def declared(outcome: Outcome) -> None:
        queue = client.state.topology.queues.get((client.vhost, name))
        if isinstance(outcome, RequestError):
            refuse(outcome)
        elif queue is None:
            refuse(NotFound(f"no queue '{name}' in vhost '{client.vhost}'"))
        elif channel.is_open:
            try:
                channel.consumers.consume(queue, tag, True, 0, started)
            except NotAllowed as taken:  # the tag, by a request behind this one
                drop()
                refuse(taken)
        else:
            drop()

    def started(outcome: Outcome) -> None:
        if isinstance(outcome, RequestError):
            drop()
            refuse(outcome)
            return
        channel.reply_consumer = outcome
        reply({"consumer": outcome})

    def refuse(error: RequestError) -> None:
        channel.reply_consumer = None
        reply(error)

    def drop() -> None:
        client.perform(DeleteQueue(client.vhost, name), lambda _: None)

    client.perform(DeclareQueue(client.vhost, name, False, {}, True, client.identity, True), declared)
