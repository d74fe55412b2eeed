"""Bindings, and the key that names one among those between the same ends."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
import xxhash

from shardmq.client.api.statistics import ListQuery
from shardmq.management.api.exchanges import exchange_name, find_exchange
from shardmq.management.web.body import table, text
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.listing import listed
from shardmq.management.web.long_lists import Pieces, in_pieces, long_list
from shardmq.message.json_values import plain
from shardmq.topology.entities import DEFAULT_EXCHANGE

ENDS: Final[Mapping[str, str]] = {"q": "queue", "e": "exchange"}
"""The letter in a path, and what it means."""


def properties_key(routing_key: str, arguments: Mapping[str, Any]) -> str:
    """The name of a binding among those between the same ends, as it stands in a path.

    It is "~" without key and arguments, else the quoted key; with arguments "~" and their hash behind it.
    """
    if not routing_key and not arguments:
        return "~"
    key = quote(routing_key, safe="").replace("~", "%7E")
    if not arguments:
        return key
    packed = msgspec.msgpack.encode(plain(dict(arguments)), order="sorted")
    return f"{key}~{xxhash.xxh64_hexdigest(packed)}"


def binding_row(row: Row) -> Row:
    """A binding, in RabbitMQ's words."""
    arguments = plain(row["arguments"])
    return {
        "source": row["source"],
        "vhost": row["vhost"],
        "destination": row["destination"],
        "destination_type": row["destination_type"],
        "routing_key": row["routing_key"],
        "arguments": arguments,
        "properties_key": properties_key(row["routing_key"], arguments),
    }


def default_binding(queue: Row) -> Row:
    """The binding to the default exchange that every queue has."""
    return {
        "source": DEFAULT_EXCHANGE,
        "vhost": queue["vhost"],
        "destination": queue["name"],
        "destination_type": "queue",
        "routing_key": queue["name"],
        "arguments": {},
        "properties_key": properties_key(queue["name"], {}),
    }


Wanted = Callable[[Row], bool]


async def _pieces(call: Call, vhost: str | None, is_wanted: Wanted) -> Pieces:
    """Bindings that the caller may see, in RabbitMQ's words, those to the default exchange first."""
    connection = await call.caller.administration()
    names = ListQuery(vhost, columns=["vhost", "name"], with_statistics=False)
    queues = (await connection.stats_list("queues", names)).pop("items")
    async for rows in in_pieces(queues, lambda some: [*filter(is_wanted, map(default_binding, some))]):
        yield rows
    bindings = (await connection.stats_list("bindings", ListQuery(vhost))).pop("items")
    async for rows in in_pieces(bindings, lambda some: [*map(binding_row, filter(is_wanted, some))]):
        yield rows


async def _listed(call: Call, vhost: str | None, is_wanted: Wanted = lambda _: True) -> Answer:
    return Answer(await long_list(_pieces(call, vhost, is_wanted), call))


async def list_bindings(call: Call) -> Answer:
    """All bindings."""
    return await _listed(call, None)


async def list_bindings_of_vhost(call: Call) -> Answer:
    """The bindings of a virtual host."""
    return await _listed(call, await call.vhost())


async def list_bindings_of_queue(call: Call) -> Answer:
    """The bindings of a queue."""
    row = await call.row("queues", call.part("vhost"), call.part("queue"))
    return await _listed(call, row["vhost"], _to(row["name"], "queue"))


async def list_bindings_from(call: Call) -> Answer:
    """The bindings of which an exchange is the source."""
    row = await find_exchange(call)
    return await _listed(call, row["vhost"], lambda each: each["source"] == row["name"])


async def list_bindings_to(call: Call) -> Answer:
    """The bindings of which an exchange is the destination."""
    row = await find_exchange(call)
    return await _listed(call, row["vhost"], _to(row["name"], "exchange"))


def _to(name: str, kind: str) -> Wanted:
    return lambda row: (row["destination"], row["destination_type"]) == (name, kind)


async def between(call: Call) -> list[Row]:
    """The bindings between the two ends that the path names.

    Raises:
        ApiError: one of the ends is not there.
    """
    source = (await find_exchange(call, "source"))["name"]
    kind = ENDS[call.part("kind")]
    if kind == "queue":
        row = await call.row("queues", call.part("vhost"), call.part("destination"))
    else:
        row = await find_exchange(call, "destination")
    is_to = _to(row["name"], kind)
    pieces = _pieces(call, row["vhost"], lambda each: each["source"] == source and is_to(each))
    return [each async for rows in pieces for each in rows]


async def list_bindings_between(call: Call) -> Answer:
    """The bindings between an exchange and a queue or exchange."""
    return Answer(listed(await between(call), call.query))


async def one_of(call: Call) -> Row:
    """The binding that the path names.

    Raises:
        ApiError: there is none.
    """
    key = call.part("key")
    keys = {key, quote(key, safe="~").replace("%7E", "~")}
    for row in await between(call):
        if row["properties_key"] in keys:
            return row
    raise ApiError.not_found(f"no binding with the properties key '{key}' there")


async def get_binding(call: Call) -> Answer:
    """One binding."""
    return Answer(await one_of(call))


def _location(call: Call, key: str) -> str:
    """Where a new binding is, from the path that was asked: clients take the last part as its properties key."""
    parts = [quote(call.part(name), safe="") for name in ("vhost", "source", "destination")]
    vhost, source, destination = parts
    return f"../../../../{vhost}/e/{source}/{call.part('kind')}/{destination}/{quote(key, safe='~')}"


async def post_binding(call: Call) -> Answer:
    """Bind a queue or an exchange to an exchange."""
    body = await call.body()
    key, arguments = text(body, "routing_key", ""), table(body, "arguments")
    source, destination = exchange_name(call.part("source")), call.part("destination")
    channel = await call.channel(call.part("vhost"))
    if ENDS[call.part("kind")] == "queue":
        await channel.queue_bind(destination, source, key, arguments)
    else:
        await channel.exchange_bind(exchange_name(destination), source, key, arguments)
    return Answer(status=201, headers={"Location": _location(call, properties_key(key, plain(arguments)))})


async def delete_binding(call: Call) -> Answer:
    """Remove a binding."""
    found = await one_of(call)
    channel = await call.channel(found["vhost"])
    ends = found["destination"], found["source"], found["routing_key"]
    rows = await call.rows("bindings", found["vhost"])
    arguments = next((row["arguments"] for row in rows if binding_row(row) == found), found["arguments"])
    if found["destination_type"] == "queue":
        await channel.queue_unbind(*ends, arguments)
    else:
        await channel.exchange_unbind(*ends, arguments)
    return NO_CONTENT


def _list(path: str, handler: Any, summary: str) -> Endpoint:
    return Endpoint("GET", path, handler, Right.MANAGEMENT, summary, list[Row], is_list=True)


class BindingBody(msgspec.Struct):
    """What a binding is to be."""

    routing_key: str = ""
    arguments: Row = {}


BETWEEN: Final = "/bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}"

ENDPOINTS: Final = (
    _list("/bindings", list_bindings, "Bindings of all virtual hosts."),
    _list("/bindings/{vhost}", list_bindings_of_vhost, "The bindings of a virtual host."),
    _list("/queues/{vhost}/{queue}/bindings", list_bindings_of_queue, "The bindings of a queue."),
    _list("/exchanges/{vhost}/{exchange}/bindings/source", list_bindings_from, "Bindings from an exchange."),
    _list("/exchanges/{vhost}/{exchange}/bindings/destination", list_bindings_to, "Bindings to an exchange."),
    _list(BETWEEN, list_bindings_between, "The bindings between an exchange and a queue or exchange."),
    Endpoint("GET", BETWEEN + "/{key}", get_binding, Right.MANAGEMENT, "One binding.", Row),
    Endpoint("POST", BETWEEN, post_binding, Right.MANAGEMENT, "Bind to an exchange.", body=BindingBody),
    Endpoint("DELETE", BETWEEN + "/{key}", delete_binding, Right.MANAGEMENT, "Remove a binding."),
)
"""What this file answers."""
