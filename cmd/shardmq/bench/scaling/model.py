"""How rates grow with processes and hosts, from what each process was measured to take: arithmetic alone.

A rate is bounded by what is first used up: the cores of all hosts, the one core that a gateway or a shard can take, the
network cards, the disks. Nothing else is in it: batches do not grow, and nobody waits for anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

US: Final = 1e6


@dataclass(frozen=True, slots=True)
class Costs:
    """What a message takes, published, confirmed, delivered and acknowledged.

    Attributes:
        gateway_us: processor time of the gateways, in µs.
        shard_us: of the shard that leads its queue.
        follower_us: of each follower; 0 where it was not measured.
        leading_us: of the shard that leads, more with a follower than without.
        client_us: of clients, where they share the broker's cores; else 0.
    """

    gateway_us: float
    shard_us: float
    follower_us: float = 0.0
    leading_us: float = 0.0
    client_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts that are alike.

    Attributes:
        count: how many there are.
        cores: of each.
        gateways: processes on each.
        shards: of the broker, as many on each host.
        replicas: of each shard.
        network_bytes_per_s: that a host can send.
        disk_bytes_per_s: that a host can write.
    """

    count: int
    cores: int
    gateways: int
    shards: int
    replicas: int = 1
    network_bytes_per_s: float = float("inf")
    disk_bytes_per_s: float = float("inf")


def bounds(costs: Costs, hosts: Hosts, body_bytes: int = 0, written: float = 0.0) -> dict[str, float]:
    """The rate, in messages a second, at which each of the hosts' parts is used up.

    Args:
        costs: of a message.
        hosts: on which the broker is.
        body_bytes: of a message, where network and disk count.
        written: bytes that a replica writes for each byte of a body.
    """
    followers = hosts.replicas - 1
    leading = costs.shard_us + costs.leading_us * bool(followers)
    whole = costs.gateway_us + leading + costs.follower_us * followers + costs.client_us
    found = {
        "cores": hosts.count * hosts.cores * US / whole,
        "gateways": hosts.count * hosts.gateways * US / costs.gateway_us,
        "shards": hosts.shards * US / leading,
    }
    if body_bytes:
        # To the shard and back where that is on another host, to its followers, and to the consumer.
        sent = body_bytes * (2 * (hosts.count - 1) / hosts.count + followers + 1)
        found["network"] = hosts.count * hosts.network_bytes_per_s / sent
        if written:
            found["disk"] = hosts.count * hosts.disk_bytes_per_s / (body_bytes * written * hosts.replicas)
    return found


def rate(found: Mapping[str, float]) -> tuple[float, str]:
    """The least of some bounds, and which one it is."""
    name = min(found, key=found.__getitem__)
    return found[name], name
