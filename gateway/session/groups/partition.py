"""One partition of a member.

starting ──shard has answered──► consuming ──revoked──► leaving ──all is settled, or its time is over──► gone
"""

from dataclasses import dataclass
from typing import Final

from shardmq.bus.messages.membership import Held
from shardmq.gateway.links.consumer import Consumer

RETRY_SECONDS: Final = 1.0
"""A partition that its shard cannot serve is tried again so much later, and each time twice as long."""

RETRY_SECONDS_MAX: Final = 10.0


def retry_seconds(retries: int) -> float:
    """When to try a partition again that was tried again so often in vain, in seconds from now."""
    return min(RETRY_SECONDS * 2.0 ** min(retries, 32), RETRY_SECONDS_MAX)


@dataclass(slots=True, eq=False)
class MemberPartition:
    """A partition that a member has.

    Attributes:
        number: its place in the topic.
        epoch: under which the member has it; 0 in shared groups.
        consumer: of its queue.
        life: of the shard's link, in which the last messages came.
        next: the offset behind all that came in it.
        is_told: whether the client knows that it has it.
        is_leaving: whether the member is to let go of it.
        is_stopped: whether its shard sends no more.
        awaits_client: whether the client has still to say that it has let go.
        retries: how often its shard could not serve it.
    """

    number: int
    epoch: int
    consumer: Consumer
    life: int = 0
    next: int = 0
    is_told: bool = False
    is_leaving: bool = False
    is_stopped: bool = False
    awaits_client: bool = False
    retries: int = 0

    @property
    def held(self) -> Held:
        """What the coordinator knows it as."""
        return self.consumer.queue, self.epoch

    @property
    def may_go(self) -> bool:
        """Whether it is to go, and the client has settled all that it got of it."""
        return self.is_leaving and self.is_stopped and not self.awaits_client and not self.consumer.unacked
