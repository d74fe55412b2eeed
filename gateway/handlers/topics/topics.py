"""Topics: permissions, then commands for the coordinator; what there is of one.

A topic's name is that of its exchange, and permissions are looked up by it, whatever the partition.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.groups import GroupState, InspectPartition, PartitionState
from shardmq.definitions.rows import Row, topic_row
from shardmq.gateway.handlers.replies import AnswerCollector, done, shaped
from shardmq.gateway.handlers.status import ANSWER_SECONDS
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.protocol.native.operations.topics import TopicDeclare, TopicDelete, TopicExtend, TopicInfo
from shardmq.topology.arguments import is_stream
from shardmq.topology.commands import DeclareTopic, DeleteTopic, ExtendTopic
from shardmq.topology.entities import Queue, Topic
from shardmq.topology.policies.keys import ALTERNATE
from shardmq.topology.repeats import is_repeated

COUNTS: Final = ("first", "next", "messages", "bytes", "oldest_ms", "newest_ms")
"""Columns of partitions that their shards know."""

NEW_GROUP: Final = {"type": "", "partitions": 0, "consumers": 0, "unacked": 0, "lag": 0}
"""The row of a group of which nothing is known."""


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
    if client.state.coordinator.is_promised and is_repeated(topology, command):
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
    """Tell what there is of a topic; a stream is a topic of one partition.

    Raises:
        AccessRefused: not permitted.
        NotFound: it is not there.
    """
    client = channel.client
    client.permissions.check_read(operation.topic, "topic")
    topic = _topic_or_stream(client, operation.topic)
    queues = _queues_of(client, topic)

    def join(found: list[tuple[int, PartitionState]]) -> None:
        states = dict(found)
        rows = [partition_row(number, queue, states.get(number)) for number, queue in enumerate(queues)]
        reply({**topic_row(topic), "partitions": rows, "groups": group_rows(states)})

    collector = AnswerCollector(len(queues), join)
    for number, queue in enumerate(queues):
        take = shaped(collector.take, partial(_numbered, number))
        client.state.links[queue.shard].look(InspectPartition(queue.id), take, ANSWER_SECONDS)


def _topic_or_stream(client: Client, name: str) -> Topic:
    stream = client.state.topology.queues.get((client.vhost, name))
    if stream is not None and is_stream(stream.arguments) and (client.vhost, name) not in client.state.topology.topics:
        return Topic(client.vhost, name, (stream.id,), stream.arguments)
    return client.state.topology.topic(client.vhost, name)


def partition_row(number: int, queue: Queue, state: PartitionState | None) -> Row:
    """The row of a partition, with who reads it; what its shard knows is None while the shard is away."""
    known: Row = {**dict.fromkeys(COUNTS), "groups": None}
    if state is not None:
        known = {name: getattr(state, name) for name in ("first", "next", "bytes", "oldest_ms", "newest_ms")}
        known["messages"] = state.next - state.first
        known["groups"] = [_reader_row(state, group) for group in state.groups]
    return {"partition": number, "queue": queue.name, "shard": queue.shard, **known}


def _reader_row(state: PartitionState, group: GroupState) -> Row:
    """What a group has read of a partition; the member is whose it is in an ordered group."""
    lag = None if group.is_damaged else state.next - max(group.offset, state.first) - group.acked_above
    return {
        "group": group.name,
        "member": group.member,
        "consumers": group.consumers,
        "unacked": group.unacked,
        "lag": lag,
        "is_damaged": group.is_damaged,
    }


def group_rows(states: Mapping[int, PartitionState]) -> list[Row]:
    """What the groups of a topic have read, each over all partitions."""
    rows: dict[str, Row] = {}
    for number, state in sorted(states.items()):
        for group in state.groups:
            row = rows.setdefault(group.name, {"group": group.name, **NEW_GROUP, "damaged": []})
            if group.is_damaged:
                row["damaged"].append(number)
                continue
            if group.is_shared is not None:
                row["type"] = "shared" if group.is_shared else "ordered"
            row["partitions"] += 1
            row["consumers"] += group.consumers
            row["unacked"] += group.unacked
            row["lag"] += state.next - max(group.offset, state.first) - group.acked_above
    return sorted(rows.values(), key=itemgetter("group"))


def _numbered(number: int, state: PartitionState) -> tuple[int, PartitionState]:
    return number, state


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
