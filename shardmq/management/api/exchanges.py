"""Exchanges, as RabbitMQ shows them."""

from typing import Any, Final

import msgspec

from shardmq.management.web.body import flag, table, text
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right, put
from shardmq.management.web.paged import paged, with_samples
from shardmq.message.json_values import plain
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
        **_flow(row),
    }


def _flow(row: Row) -> Row:
    """What was published to an exchange and passed on, where something was."""
    counts, rates = row.get("counts") or {}, row.get("rates") or {}
    shown: Row = {}
    for name, count in counts.items():
        shown[name] = count
        shown[f"{name}_details"] = {"rate": rates.get(name, 0.0)}
    return {"message_stats": shown} if any(counts.values()) else {}


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


async def find_exchange(call: Call, part: str = "exchange") -> Row:
    """The exchange that the path names, in RabbitMQ's words.

    Raises:
        ApiError: there is none.
    """
    vhost, name = await call.vhost(), exchange_name(call.part(part))
    if name == DEFAULT_EXCHANGE:
        return exchange_row(_default(vhost))
    return exchange_row(await call.row("exchanges", vhost, name))


SORTS: Final = {
    "": "",
    "name": "",
    **{name: name for name in ("vhost", "type", "durable", "auto_delete", "internal")},
    **{f"message_stats.{name}": f"counts.{name}" for name in ("publish_in", "publish_out")},
    **{f"message_stats.{name}_details.rate": f"rates.{name}" for name in ("publish_in", "publish_out")},
}
"""Columns that the broker sorts exchanges by, in RabbitMQ's words and ours."""


async def _listed(call: Call, vhost: str | None = None) -> Any:
    """The exchanges that the caller may see, with what flows through them."""
    return await paged(call, "exchanges", vhost, exchange_row, SORTS)


async def list_exchanges(call: Call) -> Answer:
    """All exchanges."""
    return Answer(await _listed(call))


async def list_exchanges_of_vhost(call: Call) -> Answer:
    """The exchanges of a virtual host."""
    return Answer(await _listed(call, await call.vhost()))


async def get_exchange(call: Call) -> Answer:
    """One exchange."""
    there = await find_exchange(call)
    row = await (await call.caller.administration()).stats_get("exchanges", there["vhost"], there["name"])
    (shown,) = with_samples(call, "exchanges", [exchange_row(row)])
    return Answer({**shown, "incoming": [], "outgoing": []})


async def put_exchange(call: Call) -> Answer:
    """Declare an exchange."""
    vhost, name, body = call.part("vhost"), exchange_name(call.part("exchange")), await call.body()
    kind, durable = text(body, "type", "direct"), flag(body, "durable", True)
    auto_delete, internal = flag(body, "auto_delete"), flag(body, "internal")
    arguments = table(body, "arguments")
    channel = await call.channel(vhost)
    is_new = not await call.exists(channel.exchange_declare(name, kind, passive=True))
    await channel.exchange_declare(name, kind, durable, arguments, auto_delete, internal)
    return put(is_new)


async def delete_exchange(call: Call) -> Answer:
    """Delete an exchange."""
    name = (await find_exchange(call))["name"]
    channel = await call.channel(call.part("vhost"))
    await channel.exchange_delete(name, call.has_flag("if-unused"))
    return NO_CONTENT


class ExchangeBody(msgspec.Struct):
    """What an exchange is to be."""

    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Row = {}


EXCHANGE: Final = "/exchanges/{vhost}/{exchange}"

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/exchanges",
        list_exchanges,
        Right.MANAGEMENT,
        "Exchanges of all virtual hosts.",
        list[Row],
        is_list=True,
        has_samples=True,
    ),
    Endpoint(
        "GET",
        "/exchanges/{vhost}",
        list_exchanges_of_vhost,
        Right.MANAGEMENT,
        "The exchanges of a virtual host.",
        list[Row],
        is_list=True,
        has_samples=True,
    ),
    Endpoint("GET", EXCHANGE, get_exchange, Right.MANAGEMENT, "One exchange.", Row, has_samples=True),
    Endpoint("PUT", EXCHANGE, put_exchange, Right.MANAGEMENT, "Declare an exchange.", body=ExchangeBody),
    Endpoint("DELETE", EXCHANGE, delete_exchange, Right.MANAGEMENT, "Delete an exchange.", parameters=("if-unused",)),
)
"""What this file answers."""
