"""What flows through this gateway: counters of channels, connections and exchanges, their sums, and all their rates."""

import ssl
from collections.abc import Collection, Hashable, Iterable
from itertools import product
from typing import Any, Final, Protocol

from shardmq.gateway.handlers.client_lists import ConnectionInfo
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.traffic import CHANNEL_COUNTS, CHURN
from shardmq.runtime.statistics.histograms import TimeHistogram
from shardmq.runtime.statistics.rates import SAMPLE_SECONDS, Counts, Sample, add, named
from shardmq.runtime.vitals import resources, vitals

Row = dict[str, Any]

BYTES: Final = ("bytes_in", "bytes_out")
EXCHANGE_COUNTS: Final = ("publish_in", "publish_out")


class CountedConnection(ConnectionInfo, Protocol):
    """A connection whose traffic is counted.

    Attributes:
        auth_mechanism: how its client has logged in, by SASL's names.
        bytes_in: received.
        bytes_out: sent.
    """

    auth_mechanism: str
    bytes_in: int
    bytes_out: int

    @property
    def address(self) -> tuple[str, int]:
        """Where the client has found this gateway: host and port."""

    @property
    def tls(self) -> ssl.SSLObject | None:
        """The encryption; None where there is none."""

    @property
    def limits(self) -> dict[str, int]:
        """What was agreed on with the client, by RabbitMQ's names."""

    def __hash__(self) -> int:
        """Tell connections apart by identity."""

    def published(self, channel: int) -> int:
        """How many messages were published on a channel."""


Counted = tuple[tuple[str, str], Channel, Counts]
"""A channel with its protocol and virtual host, and what it did."""


def _counted(connection: CountedConnection) -> list[Counted]:
    """The channels of a connection."""
    session = connection.session
    if session is None:
        return []
    place = connection.protocol, session.client.vhost
    return [
        (place, channel, channel.counts(connection.published(number))) for number, channel in session.channels.items()
    ]


class Samples:
    """The newest looks at counters of many things.

    Args:
        names: of the counters.
        now: monotonic seconds.
    """

    def __init__(self, names: tuple[str, ...], now: float) -> None:
        self._names = names
        self._at = now
        self._found: dict[Hashable, Sample] = {}

    def take(self, now: float, counted: Iterable[tuple[Hashable, Counts]]) -> None:
        """Look at all counters there are; what is not there any more is forgotten."""
        before, self._found = self._found, {}
        since, self._at = self._at, now
        for thing, counts in counted:
            sample = before.get(thing)
            if sample is None:
                if not any(counts):
                    continue
                sample = Sample(since, (0,) * len(counts))
            sample.take(now, counts)
            self._found[thing] = sample

    def rates(self, thing: Hashable) -> dict[str, float]:
        """The rates of one thing, by name."""
        sample = self._found.get(thing)
        return named(self._names, (0.0,) * len(self._names) if sample is None else sample.rates)


class Flow:
    """What flows through this gateway.

    Args:
        state: of the process.
        connections: all of them; looked at every 5 s, and whenever somebody asks.
        now: monotonic seconds.
    """

    def __init__(self, state: GatewayState, connections: Collection[CountedConnection], now: float) -> None:
        self._state = state
        self._connections = connections
        self._looked_at = now
        self._seen: dict[CountedConnection, tuple[int, list[Counted]]] = {}
        self._channels = Samples(CHANNEL_COUNTS, now)
        self._sockets = Samples(BYTES, now)
        self._exchanges = Samples(EXCHANGE_COUNTS, now)
        self._sums = Samples(CHANNEL_COUNTS, now)
        self._churn = Samples(CHURN, now)

    def tick(self, now: float) -> None:
        """Look at all counters, if it is time; forget those of what does not exist any more."""
        if now - self._looked_at < SAMPLE_SECONDS:
            return
        self._looked_at = now
        traffic = self._state.traffic
        traffic.forget_gone(self._state.topology)
        active = self._active()
        self._channels.take(now, [(channel, counts) for _, channel, counts in active])
        self._sockets.take(now, [(each, (each.bytes_in, each.bytes_out)) for each in self._connections])
        self._exchanges.take(now, [(place, tally.counts) for place, tally in traffic.tallies.items()])
        self._sums.take(now, [(place, tuple(counts)) for place, counts in self._summed(active).items()])
        self._churn.take(now, [("", tuple(traffic.churn.values()))])

    def _active(self) -> list[Counted]:
        """Open channels that ever did something; those of sockets where nothing has moved are not looked at anew."""
        before, self._seen = self._seen, {}
        for connection in self._connections:
            size = connection.bytes_in + connection.bytes_out
            seen = before.get(connection)
            if seen is None or seen[0] != size:
                seen = size, [counted for counted in _counted(connection) if any(counted[2])]
            self._seen[connection] = seen
        return [counted for _, found in self._seen.values() for counted in found]

    def _live(self) -> list[Counted]:
        """Open channels."""
        return [counted for connection in self._connections for counted in _counted(connection)]

    def _summed(self, live: Iterable[Counted]) -> dict[tuple[str, str], list[int]]:
        """What channels did, closed ones included, by protocol and virtual host."""
        sums = {place: list(counts) for place, counts in self._state.traffic.left.items()}
        for place, _, counts in live:
            add(sums.setdefault(place, [0] * len(CHANNEL_COUNTS)), counts)
        return sums

    def of_channel(self, connection: CountedConnection, channel: Channel) -> Row:
        """Counters and rates of a channel."""
        counts = channel.counts(connection.published(channel.number))
        return {"counts": named(CHANNEL_COUNTS, counts), "rates": self._channels.rates(channel)}

    def of_connection(self, connection: CountedConnection) -> Row:
        """Counters and rates of a connection's socket."""
        counts = named(BYTES, (connection.bytes_in, connection.bytes_out))
        return {"counts": counts, "rates": self._sockets.rates(connection)}

    def of_exchanges(self, vhosts: Collection[str], names: Collection[str] | None) -> list[Row]:
        """Counters and rates of exchanges that something was published to, of these names alone; None for all."""
        tallies = self._state.traffic.tallies
        wanted = tallies if names is None else {place for place in product(vhosts, names) if place in tallies}
        return [
            {
                "vhost": vhost,
                "name": name,
                "counts": named(EXCHANGE_COUNTS, tallies[vhost, name].counts),
                "rates": self._exchanges.rates((vhost, name)),
            }
            for vhost, name in wanted
            if vhost in vhosts and tallies[vhost, name].published
        ]

    def table(self, census: Row, is_detailed: bool) -> Row:
        """This process, and what its clients did: by virtual host, and with details by protocol."""
        state, traffic = self._state, self._state.traffic
        sums = self._summed(self._live())
        vhosts: dict[str, list[Row]] = {}
        for (protocol, vhost), counts in sums.items():
            flow = {"counts": named(CHANNEL_COUNTS, counts), "rates": self._sums.rates((protocol, vhost))}
            vhosts.setdefault(vhost, []).append({**flow, "protocol": protocol})
        row: Row = {
            **vitals(state.name, "gateway"),
            **census,
            "alarms": state.alarms.of(state.name),
            "flow": vhosts,
            "churn": {"counts": dict(traffic.churn), "rates": self._churn.rates("")},
            **({} if state.primaries is None else state.primaries.told()),
        }
        if is_detailed:
            row |= {**resources(), "limits": state.limits, "measures": self._measures(sums)}
        return row

    def _measures(self, sums: dict[tuple[str, str], list[int]]) -> Row:
        state, traffic = self._state, self._state.traffic
        protocols: dict[str, list[int]] = {}
        for (protocol, _), counts in sums.items():
            add(protocols.setdefault(protocol, [0] * len(CHANNEL_COUNTS)), counts)
        live = self._live()
        confirms = TimeHistogram()
        for link in state.links:
            add(confirms.counts, link.confirms.confirm_seconds.counts)
            confirms.seconds += link.confirms.confirm_seconds.seconds
        return {
            "protocols": {protocol: named(CHANNEL_COUNTS, counts) for protocol, counts in protocols.items()},
            "publishers": sum([counts[0] > 0 for *_, counts in live]),
            "routed": traffic.routed_before + sum([tally.routed for tally in traffic.tallies.values()]),
            "passes": state.passes,
            "bytes_in": traffic.bytes_in + sum([each.bytes_in for each in self._connections]),
            "bytes_out": traffic.bytes_out + sum([each.bytes_out for each in self._connections]),
            "confirm_seconds": confirms.table(),
            "delivery_seconds": traffic.delivery_seconds.table(),
            "loop_seconds": traffic.loop_seconds.table(),
            "message_bytes": traffic.sizes.table(),
        }
