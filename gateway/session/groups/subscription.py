"""What a client asks for: topic, group, kind, where a new group begins."""

from dataclasses import dataclass

from shardmq.bus.messages.groups import GroupReading
from shardmq.bus.messages.streams import Reading


@dataclass(frozen=True, slots=True)
class Subscription:
    """A client's wish to consume from a topic as a member of a group.

    Attributes:
        topic: name of the topic, or of a stream.
        group: name of the group.
        is_shared: whether any number of members get the messages of each partition.
        reading: where a new group begins, and which tags it wants.
        tag: the consumer's name on its channel; "" for one that is made here.
        auto_ack: whether messages are settled as they are delivered.
        prefetch: how many messages the member may hold, from all partitions together; 0 for no limit.
        timeout_ms: what is unsettled so long after its delivery is delivered again; 0 for never.
        delivery_limit: how often a message is returned before it dies; None for no limit.
        dead_letter_exchange: where messages go that die or are rejected; None where they are dropped.
        dead_letter_routing_key: by which key they go there; None for the one they were published with.
    """

    topic: str
    group: str
    is_shared: bool
    reading: Reading
    tag: str = ""
    auto_ack: bool = False
    prefetch: int = 0
    timeout_ms: int = 0
    delivery_limit: int | None = None
    dead_letter_exchange: str | None = None
    dead_letter_routing_key: str | None = None

    def as_member(self, member: str, epoch: int, reading: Reading, partitions_at_begin: int) -> GroupReading:
        """What the shard of a partition is told: who reads, and where the group begins there if it has no cursor."""
        return GroupReading(
            self.group,
            self.is_shared,
            epoch,
            member,
            reading,
            self.delivery_limit,
            self.dead_letter_exchange,
            self.dead_letter_routing_key,
            partitions_at_begin,
        )
