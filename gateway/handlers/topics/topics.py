"""Topics: permissions, then commands for the coordinator; what there is of one.

A topic's name is that of its exchange, and permissions are looked up by it, whatever the partition.
"""

from collections.abc import Callable
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.definitions.rows import topic_row
from shardmq.gateway.handlers.replies import AnswerCollector, done
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.topics import TopicDeclare, TopicDelete, TopicExtend, TopicInfo
from shardmq.topology.commands import DeclareTopic, DeleteTopic, ExtendTopic
from shardmq.topology.entities import Queue, Topic
from shardmq.topology.repeats import is_repeated
from shardmq.topology.router import ALTERNATE


def topic_declare(channel: Channel, operation: TopicDeclare, reply: Reply) -> None:
    """Declare a topic.

    Raises:
        AccessRefused: not permitted.
    """
    client, name = channel.client, operation.topic
    client.permissions.check_configure(name, "topic")
    topology = client.state.topology
    alternate = operation.arguments.get(ALTERNATE)
    if isinstance(alternate, str) and (client.vhost, name) not in topology.topics:
        client.permissions.check_read(name, "topic")
        client.permissions.check_write(alternate, "exchange")
    command = DeclareTopic(client.vhost, name, operation.partitions, operation.arguments)
    if client.state.coordinator.is_current and is_repeated(topology, command):
        reply(None)
    else:
        client.perform(command, done(reply))


def topic_delete(channel: Channel, operation: TopicDelete, reply: Reply) -> None:
    """Delete a topic.

    Raises:
        AccessRefused: not permitted.
        NotFound: it is not there.
    """
    client = channel.client
    client.permissions.check_configure(operation.topic, "topic")
    topic = client.state.topology.topic(client.vhost, operation.topic)
    command = DeleteTopic(client.vhost, topic.name, operation.if_unused)
    if operation.if_unused:
        _reach(client, topic, lambda: client.perform(command, done(reply)))
    else:
        client.perform(command, done(reply))


def topic_extend(channel: Channel, operation: TopicExtend, reply: Reply) -> None:
    """Add partitions to a topic.

    Raises:
        AccessRefused: not permitted.
        NotFound: it is not there.
    """
    client = channel.client
    client.permissions.check_configure(operation.topic, "topic")
    client.state.topology.topic(client.vhost, operation.topic)
    client.perform(ExtendTopic(client.vhost, operation.topic, operation.partitions), done(reply))


def topic_info(channel: Channel, operation: TopicInfo, reply: Reply) -> None:
    """Tell what there is of a topic.

    Raises:
        AccessRefused: not permitted.
        NotFound: it is not there.
    """
    client = channel.client
    client.permissions.check_read(operation.topic, "topic")
    topic = client.state.topology.topic(client.vhost, operation.topic)
    partitions = [
        {"partition": number, "queue": queue.name, "shard": queue.shard}
        for number, queue in enumerate(_queues_of(client, topic))
    ]
    reply({**topic_row(topic), "partitions": partitions})


def _queues_of(client: Client, topic: Topic) -> list[Queue]:
    found = (client.state.topology.queue_by_id(queue) for queue in topic.partitions)
    return [queue for queue in found if queue is not None]


def _reach(client: Client, topic: Topic, then: Callable[[], None]) -> None:
    """Call `then` once every shard has what was sent to it before: consumers, above all."""
    first_there = {queue.shard: queue for queue in reversed(_queues_of(client, topic))}
    waiting = AnswerCollector(len(first_there), lambda _: then())
    for queue in first_there.values():
        client.reach(queue, lambda: waiting.take(None))


REQUESTS: Final[dict[type[Any], Any]] = {
    TopicDeclare: topic_declare,
    TopicDelete: topic_delete,
    TopicExtend: topic_extend,
    TopicInfo: topic_info,
}
