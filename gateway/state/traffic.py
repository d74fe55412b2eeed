"""What clients of this gateway did, since it started: counted where it happens, and kept when they leave.

channel ── counts of its own ──► closed: added to those of its virtual host
exchange ── a tally, by virtual host and name

What was done in virtual hosts and exchanges that are gone is kept as one sum.
"""

from typing import Final

from shardmq.gateway.links.publishes.exchange_tally import ExchangeTally
from shardmq.runtime.statistics.histograms import SizeHistogram, TimeHistogram
from shardmq.runtime.statistics.rates import add
from shardmq.topology.entities import DEFAULT_EXCHANGE
from shardmq.topology.topology import Topology

CHANNEL_COUNTS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "ack",
    "redeliver",
    "reject",
    "publish_confirmed",
)
"""What is counted of each channel; the last is what is published on channels that confirm it."""

CHURN: Final = (
    "connections_opened",
    "connections_closed",
    "channels_opened",
    "channels_closed",
    "queues_declared",
)
"""What comes and goes."""


class Traffic:
    """What clients did.

    Attributes:
        left: what channels did that are closed, by protocol and virtual host; "" stands for those that are gone.
        tallies: what was published to exchanges, by virtual host and name.
        routed_before: messages that went on from exchanges that are gone, one for each queue.
        churn: how much came and went, by CHURN.
        bytes_in: what connections sent that are closed.
        bytes_out: what they were sent.
        delivery_seconds: how long messages took from here to a client of this gateway or another: one each pass.
        sizes: of the bodies of all that was published, whether a queue took it or not.
        loop_seconds: by how much ticks of the loop were late.
    """

    def __init__(self) -> None:
        self.left: dict[tuple[str, str], list[int]] = {}
        self.tallies: dict[tuple[str, str], ExchangeTally] = {}
        self.routed_before = 0
        self.churn = dict.fromkeys(CHURN, 0)
        self.bytes_in = self.bytes_out = 0
        self.delivery_seconds = TimeHistogram()
        self.loop_seconds = TimeHistogram()
        self.sizes = SizeHistogram()

    def exchange(self, vhost: str, name: str) -> ExchangeTally:
        """The tally of an exchange."""
        tally = self.tallies.get((vhost, name))
        if tally is None:
            tally = self.tallies[vhost, name] = ExchangeTally()
        return tally

    def leave(self, protocol: str, vhost: str, counts: tuple[int, ...]) -> None:
        """A channel is closed: keep what it did."""
        add(self.left.setdefault((protocol, vhost), [0] * len(CHANNEL_COUNTS)), counts)

    def forget_gone(self, topology: Topology) -> None:
        """Keep of exchanges and virtual hosts that do not exist any more their sums alone."""
        vhosts, exchanges = topology.vhosts, topology.exchanges
        gone = [
            (vhost, name)
            for vhost, name in self.tallies
            if (vhost not in vhosts if name == DEFAULT_EXCHANGE else (vhost, name) not in exchanges)
        ]
        for exchange in gone:
            self.routed_before += self.tallies.pop(exchange).routed
        for protocol, vhost in [place for place in self.left if place[1] and place[1] not in vhosts]:
            self.leave(protocol, "", tuple(self.left.pop((protocol, vhost))))
