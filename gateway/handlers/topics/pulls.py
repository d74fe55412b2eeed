"""Pulls: messages of a topic's partition by their offsets."""

from typing import Any, Protocol

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.reads import Pull, Pulled
from shardmq.bus.messages.streams import Reading
from shardmq.errors import RequestError
from shardmq.gateway.handlers.replies import delivery_tables
from shardmq.gateway.handlers.topics.partitions import no_partition, partitions_read
from shardmq.gateway.links.shard import ShardLink
from shardmq.gateway.session.client import Client
from shardmq.limits import DECLARE_SECONDS
from shardmq.protocol.native.operations.offsets import TopicPull
from shardmq.topology.entities import Queue


class PullingChannel(Protocol):
    """The channel of a pull."""

    @property
    def is_open(self) -> bool:
        """Whether it is; one that is closed needs no messages any more."""

    @property
    def client(self) -> Client:
        """Whose it is."""


def partition_of(client: Client, topic: str, number: int) -> Queue:
    """The queue that is a partition of a topic; of a stream, itself is partition 0.

    Raises:
        AccessRefused: the client may not read it.
        NotFound: there is no such topic, or no such partition of it.
        PreconditionFailed: it is a queue whose messages have no offsets.
    """
    partitions = partitions_read(client, topic)
    if number >= len(partitions):
        raise no_partition(client, topic, number, len(partitions))
    return partitions[number]


def topic_pull(channel: PullingChannel, operation: TopicPull, reply: Reply) -> None:
    """Read messages of a partition; where there are none, wait for some.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such topic, or partition.
        PreconditionFailed: it is a queue without offsets.
    """
    queue = partition_of(channel.client, operation.topic, operation.partition)
    _Puller(channel, queue, operation, reply).begin()


class _Puller:
    """One pull until it is answered.

    What is small comes at once. For more, room is borrowed first, for as long as it takes to read what is there, and
    never while nothing is there.
    """

    __slots__ = ("_channel", "_link", "_operation", "_queue", "_reading", "_reply")

    def __init__(self, channel: PullingChannel, queue: Queue, operation: TopicPull, reply: Reply) -> None:
        self._channel = channel
        self._queue = queue
        self._operation = operation
        self._reply = reply
        self._link: ShardLink = channel.client.state.links[queue.shard]
        self._reading = Reading(
            operation.begin, operation.number, operation.tags, operation.has_untagged, is_exact=True
        )

    def begin(self) -> None:
        """Ask for what is there."""
        if self._operation.bytes_max > self._channel.client.get_room:
            self._borrow(self._operation.bytes_max)
        else:
            self._wait()

    def _wait(self) -> None:
        """Ask for as much as comes without a loan, now or when it is there."""
        operation = self._operation
        room = min(operation.bytes_max, self._channel.client.get_room)
        self._ask(room, operation.wait_ms, self._came)

    def _came(self, outcome: Outcome) -> None:
        if isinstance(outcome, Pulled) and outcome.size:
            self._read_on(outcome)
            self._borrow(outcome.size)
        else:
            self._answer(outcome)

    def _read_on(self, pulled: Pulled) -> None:
        """Ask from here on for what follows what was looked at."""
        asked = self._reading
        self._reading = Reading("offset", pulled.following, asked.tags, asked.has_untagged, is_exact=True)

    def _borrow(self, size: int) -> None:
        """Ask again when there is room for `size` bytes."""
        client = self._channel.client

        def came(outcome: Outcome) -> None:
            used = size if isinstance(outcome, Pulled) and outcome.deliveries else 0
            client.account.arrived(size, used)
            if not isinstance(outcome, Pulled) or used:
                self._answer(outcome)
                if used:
                    client.front.repay_when_read(used)
                return
            self._read_on(outcome)
            if outcome.size:
                self._borrow(outcome.size)
            elif self._operation.wait_ms:
                self._wait()
            else:
                self._answer(outcome)

        def grant() -> bool:
            if self._channel.is_open:
                self._ask(size, 0, came)
            return self._channel.is_open

        client.account.ask(size, grant)

    def _ask(self, bytes_max: int, wait_ms: int, reply: Reply) -> None:
        message = Pull(self._queue.id, self._reading, self._operation.count, bytes_max, wait_ms)
        self._link.ask(message, reply, DECLARE_SECONDS + wait_ms / 1000)

    def _answer(self, outcome: Outcome) -> None:
        self._reply(
            outcome
            if isinstance(outcome, RequestError)
            else _shaped(outcome, reads_keys=self._channel.client.reads_keys)
        )


def _shaped(pulled: Pulled, *, reads_keys: bool) -> dict[str, Any]:
    return {
        "deliveries": delivery_tables(pulled.deliveries, reads_keys=reads_keys, place="offset"),
        "next": pulled.following,
        "first": pulled.first,
        "end": pulled.end,
    }
