"""The partitions of a topic, for those who may read it."""

import hashlib

from shardmq.bus.messages.groups import GroupState, PartitionState
from shardmq.errors import AccessRefused, NotFound, PreconditionFailed
from shardmq.gateway.session.client import Client
from shardmq.topology.arguments import is_stream
from shardmq.topology.entities import Queue
from shardmq.topology.partitions import partitions_of


def partitions_read(client: Client, topic: str) -> list[Queue]:
    """The queues that a topic consists of, in order, for a client that reads them; a stream is a topic of one.

    Raises:
        AccessRefused: the client may not read it.
        NotFound: there is no such topic.
        PreconditionFailed: it is a queue whose messages have no offsets.
    """
    client.permissions.check_read(topic, "topic")
    topology = client.state.topology
    numbers = partitions_of(topology, client.vhost, topic)
    if numbers is None and (client.vhost, topic) not in topology.queues:
        raise NotFound(f"no topic or stream '{topic}' in vhost '{client.vhost}'; declare it first")
    if numbers is None:
        raise PreconditionFailed(
            f"queue '{topic}' in vhost '{client.vhost}' is neither topic nor stream: its messages have no offsets; "
            "consume it"
        )
    queues = [topology.queue_by_id(number) for number in numbers]
    return [queue for queue in queues if queue is not None]


def partition_id(client: Client, queue: Queue) -> int:
    """The number that tells a partition from all others, 1 to 2**53 - 1; 0 where the broker's id is not known.

    It is another one for a partition of the same name that was made anew, or restored from a backup: of a queue's id
    and the broker's, which a restored broker has anew.
    """
    broker = client.state.broker
    if not broker:
        return 0
    digest = hashlib.blake2b(f"{broker} {queue.id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 11 or 1


def no_partition(client: Client, name: str, number: int, count: int, kind: str = "topic") -> NotFound:
    """The error for a partition that a topic, or a queue, has not."""
    has = "partition 0 alone" if count == 1 else f"{count} of them, 0 to {count - 1}"
    return NotFound(f"no partition {number} of {kind} '{name}' in vhost '{client.vhost}': it has {has}")


def topics_of(client: Client) -> list[tuple[str, str, list[Queue]]]:
    """Topics that are shown to a client and the streams beside them, by virtual host and name, with their queues."""
    topology, here = client.state.topology, client.vhosts_shown
    streams = {
        (queue.vhost, queue.name)
        for queue in topology.queues.values()
        if queue.vhost in here and is_stream(queue.arguments) and topology.topic_of(queue.id) is None
    }
    names = {(topic.vhost, topic.name) for topic in topology.topics.values() if topic.vhost in here} | streams
    found = []
    for vhost, name in sorted(names):
        queues = [topology.queue_by_id(number) for number in partitions_of(topology, vhost, name) or ()]
        found.append((vhost, name, [queue for queue in queues if queue is not None]))
    return found


def lag_of(state: PartitionState, group: GroupState) -> int:
    """How many messages of a partition a group has not acknowledged."""
    return max(0, state.next - max(group.offset, state.first) - group.acked_above)


def may_read(client: Client, vhost: str, topic: str) -> bool:
    """Whether a client may read a topic or stream."""
    try:
        client.state.permissions(client.user, vhost).check_read(topic, "topic")
    except AccessRefused:
        return False
    return True
