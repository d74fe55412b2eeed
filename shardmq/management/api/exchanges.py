"""Exchanges, as RabbitMQ shows them."""

from typing import Final

from shardmq.management.web.call import Call, Row
from shardmq.management.web.encoding import plain
from shardmq.management.web.endpoint import Answer, Endpoint, Right
from shardmq.management.web.listing import listed
from shardmq.topology.entities import DEFAULT_EXCHANGE

DEFAULT_NAME: Final = "amq.default"
"""The default exchange in paths; it has no name of its own."""


def exchange_name(part: str) -> str:
    """The name of an exchange, from a part of a path."""
    return DEFAULT_EXCHANGE if part == DEFAULT_NAME else part


def exchange_row(row: Row) -> Row:
    """An exchange, in RabbitMQ's words."""
    return {
        "name": row["name"],
        "vhost": row["vhost"],
        "type": row["type"],
        "durable": row["durable"],
        "auto_delete": row["auto_delete"],
        "internal": row["internal"],
        "arguments": plain(row["arguments"]),
        "user_who_performed_action": "rmq-internal",
    }


def _default(vhost: str) -> Row:
    return {
        "name": DEFAULT_EXCHANGE,
        "vhost": vhost,
        "type": "direct",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
    }


async def exchanges_of(call: Call, vhost: str | None = None) -> list[Row]:
    """The exchanges that the caller may see, in RabbitMQ's words; each virtual host has the default one."""
    vhosts = [row["name"] for row in await call.rows("vhosts")] if vhost is None else [vhost]
    found = [*map(_default, vhosts), *await call.rows("exchanges", vhost)]
    return [exchange_row(row) for row in found]


async def find_exchange(call: Call, part: str = "exchange") -> Row:
    """The exchange that the path names, in RabbitMQ's words.

    Raises:
        ApiError: there is none.
    """
    vhost, name = await call.vhost(), exchange_name(call.part(part))
    if name == DEFAULT_EXCHANGE:
        return exchange_row(_default(vhost))
    return exchange_row(await call.row("exchanges", vhost, name))


async def list_exchanges(call: Call) -> Answer:
    """All exchanges."""
    return Answer(listed(await exchanges_of(call), call.query))


async def list_exchanges_of_vhost(call: Call) -> Answer:
    """The exchanges of a virtual host."""
    return Answer(listed(await exchanges_of(call, await call.vhost()), call.query))


async def get_exchange(call: Call) -> Answer:
    """One exchange."""
    return Answer({**await find_exchange(call), "incoming": [], "outgoing": []})


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/exchanges",
        list_exchanges,
        Right.MANAGEMENT,
        "Exchanges of all virtual hosts.",
        list[Row],
        is_list=True,
    ),
    Endpoint(
        "GET",
        "/exchanges/{vhost}",
        list_exchanges_of_vhost,
        Right.MANAGEMENT,
        "The exchanges of a virtual host.",
        list[Row],
        is_list=True,
    ),
    Endpoint("GET", "/exchanges/{vhost}/{exchange}", get_exchange, Right.MANAGEMENT, "One exchange.", Row),
)
"""What this file answers."""
