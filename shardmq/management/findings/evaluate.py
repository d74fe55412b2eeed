"""All rules, applied to one look."""

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from shardmq.management.findings.finding import Finding
from shardmq.management.findings.looks import LOOK_SECONDS, Looks
from shardmq.management.findings.past import Past
from shardmq.management.findings.rules import ages, broker, clients, flow, queues, replicas
from shardmq.management.findings.sight import Asked, Row, Sight, look

RULES: Final[tuple[Callable[[Sight], Iterable[Finding]], ...]] = (
    broker.alarms,
    broker.groups_damaged,
    broker.shards_away,
    broker.disks_slow,
    broker.unroutable,
    broker.weak_passwords,
    replicas.of_hosts,
    clients.blocked,
    clients.many_channels,
    clients.groups,
    clients.transactions,
    queues.unread,
    queues.held,
    queues.dead_letters,
    queues.full,
    queues.reserved,
    queues.damaged,
    ages.head_waits,
    ages.unacked_waits,
    flow.redelivered,
    flow.overdue,
    flow.expired,
    flow.falls_behind,
    flow.spikes,
)
"""All there are; some tell two findings apart."""


def _found(sight: Sight) -> list[Finding]:
    return [finding for rule in RULES for finding in rule(sight)]


async def findings(
    connection: Asked,
    looks: Looks,
    address: str,
    after: float | None = None,
    overview: Callable[[], Awaitable[Row]] | None = None,
    age: float = LOOK_SECONDS,
) -> list[Row]:
    """What is wrong, of what the caller may see.

    Args:
        connection: in no virtual host, of whoever asks.
        looks: theirs, which know since when.
        address: of the broker, as host:port, for command lines that name a virtual host.
        after: seconds something has to have lasted; None for what each rule says.
        overview: reads the broker's sums; None for the connection itself.
        age: seconds that an earlier look is good for.
    """

    async def find() -> list[Finding]:
        sums = await (connection.stats_overview(is_detailed=True) if overview is None else overview())
        return _found(await look(connection, looks.past, sums))

    return await looks.rows(find, address, after, age)


async def findings_at_once(connection: Asked, address: str, after: float | None = None) -> list[dict[str, Any]]:
    """What one look finds: what has lasted long enough for all the broker knows, and what nobody knows the age of.

    Args:
        connection: of whoever asks.
        address: of the broker, as host:port.
        after: seconds something has to have lasted; None for what each rule says.
    """
    sums = await connection.stats_overview(is_detailed=True)
    found = sorted(_found(await look(connection, Past(), sums)), key=lambda each: (each.severity, each.key))
    now = time.time()
    return [each.row(now - (each.lasted or 0.0), address) for each in found if each.is_told_at_once(after)]
