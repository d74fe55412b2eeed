"""Where a group begins in each partition in which it has no cursor.

A new group begins as its first member says, and at an offset only where every partition has that. A partition that the
topic got after the group had begun is read from its first message on, whatever a member says: what was published there
before anybody was given it would be skipped.

    topic.partitions   0  1  2  3 │ 4  5 │ 6  7        declared with four, extended twice
    the group began                      ^ here: partitions_at_begin is 6
    where it begins    as told           │ at the first message

How many partitions there were is kept with the group's cursors, by the members that make them. So several members that
are the first ones begin alike, though each finds what the others have made by then. Cursors that were made without a
member do not tell; where none does, partitions that were added count as later. A topic that was never extended has as
many partitions as ever, and no shard is asked.

A group is new if it has no cursor anywhere. While shards are away, it is if it has none in a partition that the topic
was declared with: one that exists has begun there. At an offset it does not begin meanwhile.
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
from shardmq.limits import DECLARE_SECONDS


class Beginning:
    """Where a member's group is to begin.

    Args:
        client: whose member it is.
        subscription: what it asks for.

    Attributes:
        partitions: how many the topic had when the group began.
    """

    __slots__ = ("_client", "_since_ms", "_subscription", "_within", "partitions")

    def __init__(self, client: Client, subscription: Subscription) -> None:
        self._client = client
        self._subscription = subscription
        self._since_ms = client.state.now_ms
        self._within: frozenset[int] = frozenset()  # partitions that have the offset
        self.partitions = 0

    def look(self, queues: Sequence[int], then: Callable[[RequestError | None], None]) -> None:
        """Find out whether the group may begin, and with how many partitions it has; shards are asked if need be.

        Args:
            queues: ids of all partitions, in order.
            then: called with None, or with why it may not: 416 where it is new and a partition has not the offset, 506
                where that is not known, or not whether it is new, as shards are away.
        """
        topology, begin = self._client.state.topology, self._subscription.reading.begin
        topic = topology.topics.get((self._client.vhost, self._subscription.topic))
        self.partitions = topic.declared_with if topic is not None else len(queues)
        is_plain = begin == "first" or (begin != "offset" and self.partitions == len(queues))
        if is_plain or not queues:
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

        for queue in [topology.queue_by_id(number) for number in queues]:
            assert queue is not None, "partitions are taken from the topology"
            question = InspectPartition(queue.id, self._subscription.group, with_damaged=True)
            self._client.state.links[queue.shard].look(question, partial(came, queue.id), DECLARE_SECONDS)

    def reading(self, queue: int, number: int) -> Reading:
        """Return where the group begins in a partition in which it has no cursor.

        Args:
            queue: id of the partition's queue.
            number: of the partition.
        """
        reading = self._subscription.reading
        is_later = number >= self.partitions > 0
        if not is_later and (reading.begin != "offset" or queue in self._within):
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
        """Take in what shards have answered; returns why the group may not begin.

        Args:
            queues: ids of all partitions, in order.
            states: of those whose shards have answered.
            failure: why another has not; None where all have.
        """
        begin, offset = self._subscription.reading.begin, self._subscription.reading.number
        self._within = frozenset(queue for queue, state in states.items() if state.first <= offset <= state.next)
        groups = [group for state in states.values() for group in state.groups]
        if groups:
            known = [group.partitions_at_begin for group in groups if group.partitions_at_begin]
            self.partitions = min(known, default=self.partitions)
            return None
        is_new = failure is None or any(queue in states for queue in queues[: self.partitions])
        if failure is not None and (begin == "offset" or not is_new):
            return failure
        self.partitions = len(queues)
        if begin != "offset":
            return None
        without = next((queue for queue in queues if queue in states and queue not in self._within), None)
        queue = None if without is None else self._client.state.topology.queue_by_id(without)
        if queue is None:
            return None
        state = states[queue.id]
        return OffsetOutOfRange.of(offset, f"queue '{queue.name}' in vhost '{queue.vhost}'", state.first, state.next)
