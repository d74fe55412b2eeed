"""Growth: topics have got partitions, and publishers hear of it, so that what they send again goes where it went first.

A client gives with each publish the growth that it knew when it sent that first (`shardmq.topology.partitions`).
"""

from typing import Protocol

from shardmq.bus.messages.coordinator import Changes
from shardmq.topology.changes import TopicPut
from shardmq.topology.topology import Topology


class Publishing(Protocol):
    """A connection that may be publishing."""

    def topics_grown(self, growth: int) -> None:
        """Tell its client."""


class Growth:
    """Tells connections when topics have got partitions.

    Args:
        topology: the gateway's replica.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._told = topology.grown_to
        self._publishing: set[Publishing] = set()

    def join(self, connection: Publishing) -> None:
        """Tell a connection of what comes from now on."""
        self._publishing.add(connection)

    def leave(self, connection: object) -> None:
        """Forget a connection that is gone, if it was told of anything."""
        self._publishing.discard(connection)

    def loaded(self) -> None:
        """Follow a topology that was loaded anew."""
        if self._topology.grown_to != self._told:
            self._told = self._topology.grown_to
            for connection in list(self._publishing):
                connection.topics_grown(self._told)

    def changed(self, news: Changes) -> None:
        """Follow changes of topics."""
        if any(isinstance(change, TopicPut) for change in news.changes):
            self.loaded()
