"""What the replica of the topology has: exchanges, bindings, topics, virtual hosts, users."""

from collections.abc import Callable, Collection
from typing import Final

from shardmq.definitions.rows import Row, binding_row, exchange_row, policy_columns, topic_row, vhost_row
from shardmq.errors import NotFound
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.entities import DEFAULT_EXCHANGE, Exchange

Rows = Callable[[GatewayState, Collection[str]], list[Row]]


def exchange_rows(state: GatewayState, vhosts: Collection[str]) -> list[Row]:
    """The exchanges, the default one of each virtual host among them."""
    default = [Exchange(vhost, DEFAULT_EXCHANGE, "direct") for vhost in vhosts]
    declared = [exchange for exchange in state.topology.exchanges.values() if exchange.vhost in vhosts]
    there = {(exchange.vhost, exchange.name) for exchange in declared}
    return [
        exchange_row(exchange) | policy_columns(state.topology.policies.applied(exchange))
        for exchange in [*[each for each in default if (each.vhost, each.name) not in there], *declared]
    ]


def binding_rows(state: GatewayState, vhosts: Collection[str]) -> list[Row]:
    """The bindings."""
    return [binding_row(binding) for binding in state.topology.bindings.values() if binding.vhost in vhosts]


def topic_rows(state: GatewayState, vhosts: Collection[str]) -> list[Row]:
    """The topics."""
    return [topic_row(topic) for topic in state.topology.topics.values() if topic.vhost in vhosts]


def vhost_rows(state: GatewayState, vhosts: Collection[str]) -> list[Row]:
    """The virtual hosts."""
    topology = state.topology
    here = [vhost for vhost in topology.vhosts.values() if vhost.name in vhosts]
    return [vhost_row(vhost, topology.tracing.get(vhost.name, 0)) for vhost in here]


ENTITIES: Final[dict[str, tuple[Rows, tuple[str, ...]]]] = {
    "exchanges": (exchange_rows, ("vhost", "name")),
    "bindings": (binding_rows, ("vhost", "source", "destination_type", "destination", "routing_key")),
    "topics": (topic_rows, ("vhost", "name")),
    "vhosts": (vhost_rows, ("name",)),
}
"""Lists of the replica, and by what each is ordered."""


def only(rows: list[Row], noun: str, name: str) -> Row:
    """The row of that name.

    Raises:
        NotFound: there is none.
    """
    for row in rows:
        if row["name"] == name:
            return row
    raise NotFound(f"there is nothing named '{name}' among the {noun}")


def with_tallies(rows: list[Row], tallies: list[Row]) -> list[Row]:
    """Exchanges with what clients of all gateways published to them: `counts` and `rates`."""
    sums: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for tally in tallies:
        row = sums.setdefault((tally["vhost"], tally["name"]), {"counts": {}, "rates": {}})
        for kind, so_far in row.items():
            for name, value in tally[kind].items():
                so_far[name] = so_far.get(name, 0) + value
    nothing = {kind: {"publish_in": 0, "publish_out": 0} for kind in ("counts", "rates")}
    return [{**row, **sums.get((row["vhost"], row["name"]), nothing)} for row in rows]
