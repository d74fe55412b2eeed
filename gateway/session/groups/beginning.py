"""Where a new group begins in each partition, if it is to begin at an offset.

A partition that the topic got later has not the offset that its group began at: the group begins there with the first
message, as it has read none. A group that is new begins only where every partition has the offset. For one that is not
new, partitions that cannot answer are none of its business yet.
"""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from shardmq.bus.coordinator_link import Outcome
from shardmq.bus.messages.groups import InspectPartition, PartitionState
from shardmq.bus.messages.streams import Reading
from shardmq.errors import OffsetOutOfRange, RequestError
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.subscription import Subscription


class Beginning:
    """Where a member's group is to begin.

    Args:
        client: whose member it is.
        subscription: what it asks for.
    """

    __slots__ = ("_client", "_since_ms", "_subscription", "_within")

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription
        self._since_ms = client.state.now_ms
        self._within: frozenset[int] = frozenset()  # partitions that have the offset

    def look(self, queues: Sequence[int], then: Callable[[RequestError | None], None]) -> None:
        """Find out whether the group may begin; nothing is asked where it is not to begin at an offset.

        Args:
            queues: ids of all partitions, in order.
            then: called with None, or with why it may not: 416 where it is new and a partition has not the offset, and
                the first refusal where it may be new and a partition cannot answer.
        """
        if self._subscription.reading.begin != "offset" or not queues:
            then(None)
            return
        states: dict[int, PartitionState] = {}
        waiting, failure = len(queues), None

        def came(queue: int, outcome: Outcome) -> None:
            nonlocal waiting, failure
            waiting -= 1
            if isinstance(outcome, RequestError):
                failure = failure or outcome
            elif outcome is not None:
                states[queue] = outcome
            if not waiting:
                then(self._compare(queues, states, failure))

        topology = self._client.state.topology
        for queue in [topology.queue_by_id(number) for number in queues]:
            assert queue is not None, "partitions are taken from the topology"
            question = InspectPartition(queue.id, self._subscription.group, with_damaged=True)
            self._client.state.links[queue.shard].ask(question, partial(came, queue.id))

    def reading(self, queue: int) -> Reading:
        """Return where the group begins in a partition in which it has not been."""
        reading = self._subscription.reading
        if reading.begin != "offset" or queue in self._within:
            return reading
        return Reading("first", 0, reading.tags, reading.has_untagged)

    def come_late(self, consumer: Consumer) -> None:
        """Have the group begin in a partition that could not be read before, where it would have begun then.

        What has come since its member joined is not passed over.
        """
        group = consumer.group
        assert group is not None, "members consume as their groups"
        if group.begin.begin == "next":
            begin = Reading("time", self._since_ms, group.begin.tags, group.begin.has_untagged)
            consumer.group = replace(group, begin=begin)

    def _compare(
        self, queues: Sequence[int], states: dict[int, PartitionState], failure: RequestError | None
    ) -> RequestError | None:
        offset = self._subscription.reading.number
        self._within = frozenset(queue for queue, state in states.items() if state.first <= offset <= state.next)
        if any(state.groups for state in states.values()):
            return None
        without = next((queue for queue in queues if queue in states and queue not in self._within), None)
        queue = None if without is None else self._client.state.topology.queue_by_id(without)
        if failure is not None or queue is None:
            return failure
        state = states[queue.id]
        return OffsetOutOfRange.of(offset, f"queue '{queue.name}' in vhost '{queue.vhost}'", state.first, state.next)
