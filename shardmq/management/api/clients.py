"""Connections, channels and consumers, as RabbitMQ shows them."""

import time
from typing import Any, Final

from shardmq.client.api.statistics import ListQuery
from shardmq.limits import CHANNELS_MAX
from shardmq.management.web.call import Call, Row
from shardmq.management.web.endpoint import NO_CONTENT, Answer, Endpoint, Right
from shardmq.management.web.errors import ApiError
from shardmq.management.web.long_lists import in_pieces, long_list
from shardmq.management.web.paged import message_stats, paged, sort_names, with_samples
from shardmq.message.json_values import plain

PROTOCOLS: Final = {"AMQP 0-9-1": "AMQP 0-9-1", "shardmq": "shardmq"}

NO_RATE: Final = {"rate": 0.0}


def connection_row(row: Row, node: str) -> Row:
    """A connection, in RabbitMQ's words."""
    return {
        "name": row["name"],
        "node": node,
        "type": "network",
        "protocol": row["protocol"],
        "user": row["user"],
        "user_who_performed_action": row["user"],
        "vhost": row["vhost"],
        "state": row["state"],
        "connected_at": row["connected_at"],
        "peer_host": row["peer_host"],
        "peer_port": row["peer_port"],
        "ssl": row["tls"],
        "channels": row["channels"],
        "channel_max": row.get("channel_max", CHANNELS_MAX),
        "client_properties": plain(row["client_properties"]),
        "gateway": row["gateway"],
        **{name: row[name] for name in _IF_KNOWN if name in row},
        **{name: row.get(name) or None for name in _ENCRYPTION},
        **_bytes(row.get("counts") or {}, row.get("rates") or {}),
    }


def _bytes(counts: Row, rates: Row) -> Row:
    """What a connection received and sent, where that is counted."""
    shown: Row = {}
    for name, counter in OCTETS.items():
        if counter in counts:
            shown[name] = counts[counter]
            shown[f"{name}_details"] = {"rate": rates.get(counter, 0.0)}
    return shown


OCTETS: Final = {"recv_oct": "bytes_in", "send_oct": "bytes_out"}
"""RabbitMQ's words for the bytes of connections, and ours."""


_IF_KNOWN: Final = ("frame_max", "timeout", "auth_mechanism", "host", "port")

_ENCRYPTION: Final = (
    "ssl_protocol",
    "ssl_key_exchange",
    "ssl_cipher",
    "ssl_hash",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_validity",
)
"""What TLS has agreed on, by RabbitMQ's names; null where there is none."""


def channel_name(connection: str, number: int) -> str:
    """The name of a channel."""
    return f"{connection} ({number})"


def channel_row(row: Row, node: str) -> Row:
    """A channel, in RabbitMQ's words."""
    return {
        "name": channel_name(row["connection"], row["number"]),
        "number": row["number"],
        "node": node,
        "connection_details": {
            "name": row["connection"],
            "peer_host": row["peer_host"],
            "peer_port": row["peer_port"],
        },
        "user": row["user"],
        "vhost": row["vhost"],
        "state": "running",
        "consumer_count": row["consumers"],
        "confirm": row["confirm"],
        "transactional": row["transactional"],
        "prefetch_count": row["prefetch"],
        "global_prefetch_count": row.get("global_prefetch", 0),  # a gateway of an older version does not tell
        "messages_unacknowledged": row["unacked"],
        "messages_unconfirmed": row["unconfirmed"],
        "messages_uncommitted": 0,
        "acks_uncommitted": 0,
        **({"message_stats": message_stats(row["counts"], row.get("rates") or {})} if row.get("counts") else {}),
    }


def consumer_row(row: Row, node: str) -> Row:
    """A consumer, in RabbitMQ's words."""
    return {
        "consumer_tag": row["tag"],
        "active": True,
        "activity_status": "up",
        "ack_required": not row["auto_ack"],
        "prefetch_count": row["prefetch"],
        "exclusive": row["exclusive"],
        "arguments": {
            **({"x-priority": row["priority"]} if row["priority"] else {}),
            **({"x-group": row["group"]} if "group" in row else {}),
        },
        "consumer_timeout": "undefined",
        "queue": {"name": row["queue"], "vhost": row["vhost"]},
        "channel_details": {
            "name": channel_name(row["connection"], row["channel"]),
            "number": row["channel"],
            "connection_name": row["connection"],
            "node": node,
            "user": row["user"],
            **{name: row[name] for name in ("peer_host", "peer_port") if name in row},
        },
    }


async def connections_of(call: Call, vhost: str | None = None) -> list[Row]:
    """Connections that the caller may see; those of management itself are in no virtual host."""
    return [row for row in await call.rows("connections", vhost) if row["vhost"]]


async def _by_name(call: Call) -> dict[str, Row]:
    return {row["name"]: row for row in await connections_of(call)}


async def _broker_rows(call: Call, noun: str, vhost: str | None = None) -> list[Row]:
    """What the broker lists of clients, as far as the caller may see it; nothing of management itself."""
    table = await (await call.caller.administration()).stats_list(noun, ListQuery(vhost))
    return [row for row in table["items"] if row["vhost"]]


async def _channels(call: Call, vhost: str | None = None, connection: str = "") -> Answer:
    """Channels that the caller may see: of a virtual host, or of a connection."""
    found = await _broker_rows(call, "channels", vhost)
    rows = [row for row in found if row["connection"] == connection] if connection else found

    def shown(some: list[Row]) -> list[Row]:
        return with_samples(call, "channels", [channel_row(row, call.facts.node) for row in some])

    return Answer(await long_list(in_pieces(rows, shown), call))


async def _consumers(call: Call, vhost: str | None = None) -> Answer:
    """Consumers that the caller may see."""

    def shown(some: list[Row]) -> list[Row]:
        return [consumer_row(row, call.facts.node) for row in some]

    return Answer(await long_list(in_pieces(await _broker_rows(call, "consumers", vhost), shown), call))


async def consumers_of_queue(call: Call, vhost: str, queue: Row) -> list[Row]:
    """The consumers of a queue, in RabbitMQ's words, with what each holds; of a partition, those of groups as well.

    Args:
        call: of whoever asks.
        vhost: theirs.
        queue: theirs, with its `consumer_list`.
    """
    held = {(each["gateway"], each["consumer"]): each for each in queue["consumer_list"]}
    rows = []
    for row in await _broker_rows(call, "consumers", vhost):
        number = row.get("partitions", {}).get(queue["name"]) if "group" in row else row.get("consumer")
        if row["queue"] == queue["name"] or ("group" in row and number is not None):
            shown = consumer_row({**row, "queue": queue["name"]}, call.facts.node)
            rows.append(shown | _held(held.get((row.get("gateway"), number))))
    return rows


LATENCIES: Final = ("ack_latency_ms", "ack_latency_ms_max")
"""From delivery until it is settled, of the last messages that were timed: the middle and the longest."""


def _held(consumer: Row | None) -> Row:
    """What a consumer holds, as its shard says."""
    if consumer is None:
        return {}
    held = {name: consumer[name] for name in ("active", "unacked")}
    held |= {name: consumer[name] for name in LATENCIES if consumer.get(name) is not None}
    if consumer["oldest_unacked_at"] is not None:
        held["oldest_unacked_ms"] = max(0, round(time.time() * 1000) - consumer["oldest_unacked_at"])
    return held


SORTS: Final = sort_names(
    {
        **{name: name for name in ("user", "vhost", "protocol", "state", "channels", "connected_at")},
        **{name: f"counts.{counter}" for name, counter in OCTETS.items()},
        **{f"{name}_details.rate": f"rates.{counter}" for name, counter in OCTETS.items()},
    }
)
"""Columns that the broker sorts connections by, in RabbitMQ's words and ours."""


async def _connections(call: Call, vhost: str | None) -> Answer:
    return Answer(await paged(call, "connections", vhost, lambda row: connection_row(row, call.facts.node), SORTS))


async def list_connections(call: Call) -> Answer:
    """All connections."""
    return await _connections(call, None)


async def list_connections_of_vhost(call: Call) -> Answer:
    """The connections of a virtual host."""
    return await _connections(call, await call.vhost())


async def list_connections_of_user(call: Call) -> Answer:
    """The connections of a user."""
    rows = [row for row in await _broker_rows(call, "connections") if row["user"] == call.part("user")]

    def shown(some: list[Row]) -> list[Row]:
        return [connection_row(row, call.facts.node) for row in some]

    return Answer(await long_list(in_pieces(rows, shown), call))


async def _connection(call: Call) -> Row:
    name = call.part("connection")
    found = (await _by_name(call)).get(name)
    if found is None:
        raise ApiError.not_found(f"no connection '{name}'")
    return found


async def get_connection(call: Call) -> Answer:
    """One connection."""
    name = (await _connection(call))["name"]
    row = await (await call.caller.administration()).stats_get("connections", "", name)
    return Answer(with_samples(call, "connections", [connection_row(row, call.facts.node)])[0])


async def list_channels_of_connection(call: Call) -> Answer:
    """The channels of a connection."""
    return await _channels(call, connection=(await _connection(call))["name"])


async def list_channels(call: Call) -> Answer:
    """All channels."""
    return await _channels(call)


async def list_channels_of_vhost(call: Call) -> Answer:
    """The channels of a virtual host."""
    return await _channels(call, await call.vhost())


async def get_channel(call: Call) -> Answer:
    """One channel, with its consumers."""
    name = call.part("channel")
    found = next((row for row in await _broker_rows(call, "channels") if row["name"] == name), None)
    if found is None:
        raise ApiError.not_found(f"no channel '{name}'")
    (shown,) = with_samples(call, "channels", [channel_row(found, call.facts.node)])
    consumers = [
        consumer_row(row, call.facts.node)
        for row in await _broker_rows(call, "consumers", found["vhost"])
        if (row["connection"], row["channel"]) == (found["connection"], found["number"])
    ]
    return Answer({**shown, "consumer_details": consumers})


async def list_consumers(call: Call) -> Answer:
    """All consumers."""
    return await _consumers(call)


async def list_consumers_of_vhost(call: Call) -> Answer:
    """The consumers of a virtual host."""
    return await _consumers(call, await call.vhost())


def _reason(call: Call) -> str:
    return call.request.headers.get("X-Reason", "Closed via management plugin")[:REASON_MAX]


async def delete_connection(call: Call) -> Answer:
    """Close a connection."""
    name = (await _connection(call))["name"]
    await (await call.caller.administration()).connection_expel(name, _reason(call))
    return NO_CONTENT


async def delete_connections_of_user(call: Call) -> Answer:
    """Close all connections of a user."""
    user, administration = call.part("user"), await call.caller.administration()
    for row in await connections_of(call):
        if row["user"] == user:
            await administration.connection_expel(row["name"], _reason(call))
    return NO_CONTENT


REASON_MAX: Final = 255
"""Characters of a reason; clients are told no more."""


def _list(path: str, handler: Any, summary: str, has_samples: bool = True) -> Endpoint:
    return Endpoint(
        "GET",
        path,
        handler,
        Right.MANAGEMENT,
        summary,
        list[Row],
        is_list=True,
        has_samples=has_samples,
        is_shared=True,
    )


ENDPOINTS: Final = (
    _list("/connections", list_connections, "Connections that the caller may see."),
    _list("/connections/username/{user}", list_connections_of_user, "The connections of a user.", False),
    Endpoint(
        "GET", "/connections/{connection}", get_connection, Right.MANAGEMENT, "One connection.", Row, has_samples=True
    ),
    Endpoint("DELETE", "/connections/{connection}", delete_connection, Right.MANAGEMENT, "Close a connection."),
    Endpoint(
        "DELETE",
        "/connections/username/{user}",
        delete_connections_of_user,
        Right.MANAGEMENT,
        "Close the connections of a user.",
    ),
    _list("/connections/{connection}/channels", list_channels_of_connection, "The channels of a connection."),
    _list("/vhosts/{vhost}/connections", list_connections_of_vhost, "The connections of a virtual host."),
    _list("/channels", list_channels, "Channels that the caller may see."),
    Endpoint(
        "GET",
        "/channels/{channel}",
        get_channel,
        Right.MANAGEMENT,
        "One channel, with its consumers.",
        Row,
        has_samples=True,
    ),
    _list("/vhosts/{vhost}/channels", list_channels_of_vhost, "The channels of a virtual host."),
    _list("/consumers", list_consumers, "Consumers that the caller may see.", False),
    _list("/consumers/{vhost}", list_consumers_of_vhost, "The consumers of a virtual host.", False),
)
"""What this file answers."""
