"""What the replica of the topology has: exchanges, bindings, topics and virtual hosts, in the order of lists."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from shardmq.definitions.rows import Row, binding_row, exchange_row, policy_columns, topic_row, vhost_row
from shardmq.errors import NotFound
from shardmq.gateway.state.gateway import GatewayState
from shardmq.topology.entities import DEFAULT_EXCHANGE, Binding, Exchange, Vhost
from shardmq.topology.topology import Topology

Things = Callable[[Topology, Collection[str]], list[Any]]


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of things.

    Attributes:
        things: those of some virtual hosts, in any order.
        row: the row of one.
        columns: what can be had of a thing without its row.
        order: the columns that lists are ordered by.
        searched: what the filter by name looks into.
    """

    things: Things
    row: Callable[[GatewayState, Any], Row]
    columns: Mapping[str, Callable[[Any], Any]]
    order: tuple[str, ...] = ("vhost", "name")
    searched: Callable[[Any], str] = attrgetter("name")


def _exchanges(topology: Topology, vhosts: Collection[str]) -> list[Exchange]:
    """The exchanges, the default one of each virtual host among them."""
    default = [Exchange(vhost, DEFAULT_EXCHANGE, "direct") for vhost in vhosts]
    declared = [exchange for exchange in topology.exchanges.values() if exchange.vhost in vhosts]
    there = {(exchange.vhost, exchange.name) for exchange in declared}
    return [*[each for each in default if (each.vhost, each.name) not in there], *declared]


def _exchange_row(state: GatewayState, exchange: Exchange) -> Row:
    return exchange_row(exchange) | policy_columns(state.topology.policies.applied(exchange))


def _vhost_row(state: GatewayState, vhost: Vhost) -> Row:
    return vhost_row(vhost, state.topology.tracing.get(vhost.name, 0))


def _kind_of_destination(binding: Binding) -> str:
    return "exchange" if binding.to_exchange else "queue"


def _attributes(*names: str) -> dict[str, Callable[[Any], Any]]:
    return {name: attrgetter(name) for name in names}


ENTITIES: Final[Mapping[str, Entity]] = {
    "exchanges": Entity(
        _exchanges,
        _exchange_row,
        _attributes("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments"),
    ),
    "bindings": Entity(
        lambda topology, vhosts: [each for each in topology.bindings.values() if each.vhost in vhosts],
        lambda _, binding: binding_row(binding),
        {
            **_attributes("vhost", "destination"),
            "source": attrgetter("exchange"),
            "destination_type": _kind_of_destination,
            "routing_key": attrgetter("key"),
        },
        ("vhost", "source", "destination_type", "destination", "routing_key"),
        lambda binding: f"{binding.exchange} {binding.destination}",
    ),
    "topics": Entity(
        lambda topology, vhosts: [each for each in topology.topics.values() if each.vhost in vhosts],
        lambda _, topic: topic_row(topic),
        _attributes("vhost", "name", "epoch"),
    ),
    "vhosts": Entity(
        lambda topology, vhosts: [each for each in topology.vhosts.values() if each.name in vhosts],
        _vhost_row,
        _attributes("name", "description"),
        ("name",),
    ),
}
"""The kinds of things that there are lists of."""


def in_order(state: GatewayState, noun: str, vhosts: Collection[str]) -> list[Any]:
    """What there is of one kind in these virtual hosts, in the order of lists; not to be changed."""
    entity = ENTITIES[noun]
    columns = [entity.columns[name] for name in entity.order]

    def make(wanted: frozenset[str]) -> list[Any]:
        things = entity.things(state.topology, wanted)
        return sorted(things, key=lambda thing: [column(thing) for column in columns])

    return state.orders.of(noun, frozenset(vhosts), make)


def only(found: list[Any], noun: str, name: str) -> Any:
    """The one thing, or row, that has that name.

    Raises:
        NotFound: there is none.
    """
    if not found:
        raise NotFound(f"there is nothing named '{name}' among the {noun}")
    return found[0]


def with_tallies(rows: list[Row], tallies: list[Row]) -> list[Row]:
    """Exchanges with what clients of all gateways published to them: `counts` and `rates`."""
    sums: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for tally in tallies:
        row = sums.setdefault((tally["vhost"], tally["name"]), {"counts": {}, "rates": {}})
        for kind, so_far in row.items():
            for name, value in tally[kind].items():
                so_far[name] = so_far.get(name, 0) + value
    nothing: dict[str, dict[str, float]] = {kind: {"publish_in": 0, "publish_out": 0} for kind in ("counts", "rates")}
    for each in rows:
        each.update(sums.get((each["vhost"], each["name"]), nothing))
    return rows
