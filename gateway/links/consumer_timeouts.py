"""Which consumers have messages return by themselves, as policies come and go.

A shard gives a consumer the time that its queue has when it starts it, and starts it anew once it was away. So one that
began without may have a time whenever a policy gives its queue one, and keeps it when the policy is gone again.
"""

from collections.abc import Collection
from typing import Final

from shardmq.bus.messages.coordinator import Changes
from shardmq.gateway.links.shard import ShardLink
from shardmq.topology.arguments import CONSUMER_TIMEOUT
from shardmq.topology.changes import PolicyPut, PolicyRemoved
from shardmq.topology.topology import Topology

SETTING: Final = CONSUMER_TIMEOUT.removeprefix("x-")
"""Its name in policies."""


class ConsumerTimeouts:
    """Notes consumers whose queues are given a time by a policy: `Consumer.times_out`.

    Args:
        topology: the gateway's replica.
        links: to the shards.
    """

    def __init__(self, topology: Topology, links: Collection[ShardLink]) -> None:
        self._topology = topology
        self._links = links

    def loaded(self) -> None:
        """Follow a topology that was loaded anew."""
        if any(SETTING in policy.definition for policy in self._topology.policies):
            for link in self._links:
                for consumer in link.consumers:
                    consumer.times_out = consumer.times_out or self._has_time(consumer.queue)

    def changed(self, news: Changes) -> None:
        """Follow changes of policies: where one ends, another may apply."""
        if any(isinstance(change, PolicyPut | PolicyRemoved) for change in news.changes):
            self.loaded()

    def _has_time(self, number: int) -> bool:
        """Whether the queue with this id has a time for its consumers."""
        queue = self._topology.queue_by_id(number)
        return queue is not None and CONSUMER_TIMEOUT in self._topology.policies.arguments(queue)
