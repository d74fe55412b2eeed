"""What the rules look at, read with the caller's rights: the caller sees findings of what they may see."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from shardmq.client.api.statistics import ListQuery
from shardmq.errors import NotFound, ReplyCode, RequestError
from shardmq.management.findings.past import Past

Row = dict[str, Any]

QUEUES_MAX: Final = 500
"""The fullest queues; those with fewer messages are not looked at."""

CONNECTIONS_MAX: Final = 100

DETAILED_MAX: Final = 20
"""Queues that are asked for each of their consumers."""

DELIVERIES: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")


class Asked(Protocol):
    """A connection, as far as a look needs it."""

    async def stats_list(self, noun: str, query: ListQuery) -> dict[str, Any]:
        """Rows of a list."""

    async def stats_get(self, noun: str, vhost: str, name: str) -> dict[str, Any]:
        """One row with all that is known."""

    async def stats_overview(self, vhost: str | None = None, *, is_detailed: bool = False) -> dict[str, Any]:
        """Sums of the broker."""

    async def topology(self, noun: str) -> list[dict[str, Any]]:
        """A list without statistics."""


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at the broker.

    Attributes:
        overview: sums, processes (where the caller may see them), shards that are away.
        queues: the fullest, without those of streams and topics.
        dead: virtual hosts and names of queues that dead letters are sent to.
        details: rows with `consumer_list`, by virtual host and name, of queues where nothing moves.
        consumers: connections of consumers, by virtual host and queue.
        blocked: connections whose publishes are held.
        wide: connections with the most channels.
        groups: of consumers; none while a shard is away, which would have to be asked.
        transactions: undecided ones; likewise.
        flushes: since the look before, by process: how many, and seconds of all.
        usual: rates of publishing, by virtual host and queue.
        unacked: seconds that the first unacked message of a queue has been the same, by virtual host and queue.
    """

    overview: Row
    queues: list[Row]
    dead: set[tuple[str, str]]
    details: Mapping[tuple[str, str], Row]
    consumers: Mapping[tuple[str, str], list[str]]
    blocked: list[Row]
    wide: list[Row]
    groups: list[Row]
    transactions: list[Row]
    flushes: Mapping[str, tuple[int, float]]
    usual: Mapping[tuple[str, str], float]
    unacked: Mapping[tuple[str, str], float]


def is_stalled(row: Row) -> bool:
    """Whether a queue's consumers hold messages, more are ready, and none moves."""
    rates = row["rates"]
    moves = any(rates[name] > 0 for name in (*DELIVERIES, "ack"))
    return bool(row["ready"] and row["unacked"] and row["consumers"] and not moves)


def arguments_of(row: Row) -> Row:
    """Arguments of a queue, with what policies add, in the names of arguments."""
    effective = row.get("effective_policy_definition") or {}
    return {**{f"x-{name}": value for name, value in effective.items()}, **row["arguments"]}


async def _dead_letter_queues(connection: Asked, queues: list[Row]) -> set[tuple[str, str]]:
    """Queues that others send dead letters to, by whichever exchanges.

    Queues whose messages all end after a time are waiting rooms: what they pass on is no dead letter.
    """
    dead, exchanges = set(), set()
    for row in queues:
        arguments = arguments_of(row)
        exchange = arguments.get("x-dead-letter-exchange")
        if exchange is None or "x-message-ttl" in arguments:
            continue
        if exchange:
            exchanges.add((row["vhost"], exchange))
        else:
            dead.add((row["vhost"], arguments.get("x-dead-letter-routing-key", "")))
    if not exchanges:
        return dead
    bindings = await connection.topology("bindings")
    reached, more = exchanges, True
    while more:
        targets = {
            (each["vhost"], each["destination"], each["destination_type"])
            for each in bindings
            if (each["vhost"], each["source"]) in reached
        }
        there = {(vhost, name) for vhost, name, kind in targets if kind == "exchange"} | reached
        more, reached = len(there) > len(reached), there
    return dead | {(vhost, name) for vhost, name, kind in targets if kind == "queue"}


async def _of_shards(connection: Asked, noun: str, away: list[str]) -> list[Row]:
    """A list that every shard has a part of; empty while one is away, or goes away meanwhile."""
    if away:
        return []
    try:
        return await connection.topology(noun)
    except RequestError as refusal:
        if refusal.code != ReplyCode.RESOURCE_ERROR:
            raise
        return []


async def look(connection: Asked, past: Past, overview: Row) -> Sight:
    """Read what the rules need.

    Args:
        connection: in no virtual host, of whoever asks.
        past: what earlier looks saw; it remembers this one.
        overview: the broker's sums.
    """
    table = await connection.stats_list(
        "queues", ListQuery(sort="messages", reverse=True, page=1, page_size=QUEUES_MAX)
    )
    known = [row for row in table["items"] if row.get("counts") or row.get("state", "running") != "running"]
    queues = [row for row in known if row["arguments"].get("x-queue-type") != "stream"]
    stalled = [row for row in queues if row.get("counts") and is_stalled(row)][:DETAILED_MAX]
    details: dict[tuple[str, str], Row] = {}
    for row in stalled:
        try:
            details[row["vhost"], row["name"]] = await connection.stats_get("queues", row["vhost"], row["name"])
        except NotFound:
            continue  # deleted since
    consumers: dict[tuple[str, str], list[str]] = {}
    if details:
        for each in await connection.topology("consumers"):
            consumers.setdefault((each["vhost"], each["queue"]), []).append(each["connection"])
    by_state = ListQuery(sort="state", page=1, page_size=CONNECTIONS_MAX)
    by_channels = ListQuery(sort="channels", reverse=True, page=1, page_size=CONNECTIONS_MAX)
    return Sight(
        overview,
        queues,
        await _dead_letter_queues(connection, queues),
        details,
        consumers,
        [row for row in (await connection.stats_list("connections", by_state))["items"] if row["state"] == "blocked"],
        (await connection.stats_list("connections", by_channels))["items"],
        await _of_shards(connection, "groups", overview["away"]),
        await _of_shards(connection, "transactions", overview["away"]),
        past.flushes(overview.get("processes", ())),
        past.usual([row for row in queues if row.get("counts")], time.monotonic()),
        past.unacked([row for row in queues if row.get("counts")], time.monotonic()),
    )
