"""amq.rabbitmq.reply-to: answers to a channel's requests without a queue that anybody declares.

https://www.rabbitmq.com/docs/direct-reply-to

    requester                                              responder, anywhere
    consume amq.rabbitmq.reply-to, no-ack                  consumes the queue of requests
    publish, reply_to: amq.rabbitmq.reply-to  ─► rewritten ─►  reply_to: amq.rabbitmq.reply-to.<token>
    deliver  ◄────────────────────────────────────────────  publish to "", key amq.rabbitmq.reply-to.<token>

Behind that name is a queue after all: transient, exclusive to the connection, deleted when its only consumer is gone.
So answers are routed as everything is, from any gateway and either protocol, and come back unroutable (mandatory) where
nobody waits for them any more. Who knows the name may publish to it, where the default exchange is theirs to write to;
nothing else can be done with it: for all that deals with queues by name, there is none. No permission is needed to have
it, and it is in no list, as its name is what makes an answer welcome.
"""

import base64
import secrets
from typing import Final

from shardmq.bus.coordinator_link import Outcome
from shardmq.errors import NotFound, ReplyCode, RequestError
from shardmq.gateway.amqp.channel import AmqpChannel, ReplyQueue
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.methods.basic import BasicConsume, BasicConsumeOk
from shardmq.protocol.amqp.methods.topology import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from shardmq.protocol.amqp.property_facts import DIRECT_REPLY
from shardmq.topology.commands import DeclareQueue, DeleteQueue
from shardmq.topology.entities import REPLY_QUEUES

TOKEN_BYTES: Final = 24
"""Random bytes in a reply queue's name: nobody guesses it."""


def is_reply_name(queue: str) -> bool:
    """Whether a queue's name is one that this module answers for."""
    return queue.startswith(DIRECT_REPLY)


def consume(channel: AmqpChannel, method: BasicConsume) -> None:
    """Start the consumer of a channel's answers.

    Raises:
        AmqpError: with acknowledgements; the channel does so already; the tag is in use.
    """
    client = channel.client
    if channel.session_channel.consumers.has_tag(method.consumer_tag):
        text = f"attempt to reuse consumer tag '{method.consumer_tag}'"
        raise AmqpError(ReplyCode.NOT_ALLOWED, text, method.id)
    if not method.no_ack:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge", method.id)
    if channel.reply_queue is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer already set", method.id)
    name = REPLY_QUEUES + base64.urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode()

    def started(tag: str) -> BasicConsumeOk | None:
        channel.replies = ReplyQueue(name, tag)
        return None if method.nowait else BasicConsumeOk(tag)

    reply = channel.reply(method, started)

    def declared(outcome: Outcome) -> None:
        if isinstance(outcome, RequestError):
            reply(outcome)
            return
        queue = client.state.topology.queues.get((client.vhost, name))
        if queue is None:
            reply(NotFound(f"no queue '{name}' in vhost '{client.vhost}'"))
        elif channel.is_open:
            channel.session_channel.consumers.consume(queue, method.consumer_tag, True, 0, reply)
        else:
            client.perform(DeleteQueue(client.vhost, name), lambda _: None)

    client.perform(DeclareQueue(client.vhost, name, False, {}, True, client.identity, True), declared)


def declare(channel: AmqpChannel, method: QueueDeclare) -> None:
    """See whether somebody waits for answers under a name; every declaration of one is passive, as in RabbitMQ.

    Raises:
        NotFound: nobody does.
    """
    client, name = channel.client, method.queue
    if name != DIRECT_REPLY and (client.vhost, name) not in client.state.topology.queues:
        raise NotFound(f"no queue '{name}' in vhost '{client.vhost}'")
    if not method.nowait:
        channel.send(QueueDeclareOk(name, 0, 1))


def delete(channel: AmqpChannel, method: QueueDelete) -> None:
    """Confirm a deletion, and do nothing: a reply queue is deleted with its consumer."""
    if not method.nowait:
        channel.send(QueueDeleteOk(0))
