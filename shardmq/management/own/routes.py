"""Where a message with a routing key would go: the exchanges it passes, and the queues it reaches."""

from typing import Final

from shardmq.management.api.exchanges import exchange_name
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.message.properties import Properties
from shardmq.topology.entities import DEFAULT_EXCHANGE
from shardmq.topology.exchanges import TYPES
from shardmq.topology.exchanges.exchange_type import ExchangeType
from shardmq.topology.policies.keys import ALTERNATE


class Map:
    """The exchanges and bindings of a virtual host, as lists have them.

    Args:
        exchanges: rows of exchanges; the default one needs none.
        queues: rows of queues.
        bindings: rows of bindings.
    """

    def __init__(self, exchanges: list[Row], queues: list[Row], bindings: list[Row]) -> None:
        self._alternates = {row["name"]: _alternate(row) for row in exchanges}
        self._types: dict[str, ExchangeType] = {row["name"]: TYPES[row["type"]](row["arguments"]) for row in exchanges}
        self._queues = [row["name"] for row in queues]
        numbers = {name: number for number, name in enumerate(self._queues)}
        for row in bindings:
            name = row["destination"]
            destination = name if row["destination_type"] == "exchange" else numbers.get(name)
            if destination is not None:  # the queue was declared after the list of queues was made
                self._types[row["source"]].add(row["routing_key"], destination, row["arguments"])

    def route(self, exchange: str, key: str, properties: Properties) -> tuple[list[str], list[str]]:
        """The exchanges that a message passes, and the queues that it reaches, each once.

        Topics that give their partitions messages in turns are asked for the first turn.
        """
        passed, reached, ahead = [exchange], dict[str, None](), [exchange]
        while ahead:
            name = ahead.pop()
            if name == DEFAULT_EXCHANGE:
                if key in self._queues:
                    reached[key] = None
                continue
            if name not in self._types:
                continue
            alternate = self._alternates[name]
            matched = self._types[name].match(key, properties) or (() if alternate is None else (alternate,))
            for destination in matched:
                if isinstance(destination, int):
                    reached[self._queues[destination]] = None
                elif destination not in passed:
                    passed.append(destination)
                    ahead.append(destination)
        return passed, sorted(reached)


def _alternate(exchange: Row) -> str | None:
    """The alternate exchange: by the exchange's argument, or by a policy."""
    by_policy = exchange.get("effective_policy_definition") or {}
    found = exchange["arguments"].get(ALTERNATE, by_policy.get(ALTERNATE))
    return found if isinstance(found, str) else None


async def route(call: Call) -> Answer:
    """Where a message would go that is published to an exchange with a routing key."""
    vhost, name = await call.vhost(), exchange_name(call.part("exchange"))
    exchanges = await call.rows("exchanges", vhost)
    if name != DEFAULT_EXCHANGE and all(row["name"] != name for row in exchanges):
        raise ApiError.not_found(f"no exchange '{name}' in vhost '{vhost}'")
    found = Map(exchanges, await call.rows("queues", vhost), await call.rows("bindings", vhost))
    passed, reached = found.route(name, call.query.get("routing_key", ""), Properties())
    return Answer({"exchanges": passed, "queues": reached})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/shardmq/exchanges/{vhost}/{exchange}/route",
        route,
        Right.MANAGEMENT,
        "Where a message with a routing key would go.",
        Row,
        parameters=("routing_key",),
    ),
)
"""What this file answers."""
