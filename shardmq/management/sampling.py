"""Takes samples of the broker and of its busiest queues, by the login of somebody who sees everything.

    every 5 s ─► login of the URL's user, or of a monitor who is here ─► overview, queues ─► Samples
                                                                     └─► findings ─► events

Without such a login there is nothing to look with, and samples have a gap.
"""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from shardmq.client.aio.connection import Connection
from shardmq.client.api.statistics import ListQuery
from shardmq.client.api.url import parse
from shardmq.errors import AuthenticationFailed, NotFound, ShardmqError
from shardmq.management.api.cluster import node_row, overview_row
from shardmq.management.api.queues import queue_row
from shardmq.management.api.vhosts import vhost_counts
from shardmq.management.findings.telling import FindingEvents
from shardmq.management.samples.spans import now
from shardmq.management.samples.store import SAMPLE_SECONDS
from shardmq.management.state.callers import Caller, Callers, Credentials
from shardmq.management.state.facts import Facts

BUSIEST: Final = 200
"""Queues that are sampled for what is published to them."""

FEW_QUEUES: Final = 2000
"""Up to so many, the busiest are asked for at each look; of more, at every RANK_TURNS-th: shards sort them all."""

RANK_TURNS: Final = 12

_log = logging.getLogger(__name__)


def own_credentials(url: str) -> Credentials | None:
    """The user and the password that a URL names; None where it names none."""
    parts = urlsplit(url)
    if not parts.username or parts.password is None:
        return None
    return Credentials(unquote(parts.username), unquote(parts.password))


class Sampler:
    """Takes samples.

    Args:
        callers: one of whom looks.
        facts: that keep the samples.
        own: whose login is used first; None for that of whoever is here.
    """

    def __init__(self, callers: Callers, facts: Facts, own: Credentials | None) -> None:
        self._callers = callers
        self._facts = facts
        self._own = own
        self._events = FindingEvents()
        self._address = parse(facts.url)
        self._turn = 0
        self._fault = self._told = ""

    async def run(self) -> None:
        """Take samples for ever; a task of its own."""
        while True:
            try:
                async with self._caller() as caller, asyncio.timeout(SAMPLE_SECONDS):
                    if caller is not None:
                        connection = await caller.administration()
                        await self._look(connection)
                        await self._events.look(connection, caller.looks, f"{self._address.host}:{self._address.port}")
                self._tell("")
            except AuthenticationFailed as fault:
                self._own = None  # guessing on would look like an attack
                self._tell(f"the URL's user is refused, so others' logins are used: {fault}", is_certain=True)
            except (ShardmqError, TimeoutError) as fault:
                self._tell(str(fault) or "the broker did not answer in time")
            await asyncio.sleep(SAMPLE_SECONDS)

    def _caller(self) -> AbstractAsyncContextManager[Caller | None]:
        if self._own is not None:
            return self._callers.borrow(self._own)
        return nullcontext(self._callers.monitor())

    def _tell(self, fault: str, is_certain: bool = False) -> None:
        """Log what is wrong, once; what may pass, as a gateway that is about to start, when it was wrong twice."""
        if fault and fault != self._told and (is_certain or fault == self._fault):
            _log.warning("no samples were taken: %s", fault)
            self._told = fault
        elif not fault:
            self._told = ""
        self._fault = fault

    async def _look(self, connection: Connection) -> None:
        found = await connection.stats_overview(is_detailed=True)
        if "processes" not in found:
            raise AuthenticationFailed("it has not the tag monitoring")
        at, facts, samples = now(), self._facts, self._facts.samples
        samples.take("overview", overview_row(facts, found), at)
        samples.take("nodes", node_row(facts, found["processes"]), at)
        for name, counts in vhost_counts(found).items():
            samples.take("vhosts", counts, at, name)
        busy: list[dict[str, Any]] = []
        if found["object_totals"]["queues"] <= FEW_QUEUES or self._turn % RANK_TURNS == 0:
            query = ListQuery(sort="rates.publish", reverse=True, page=1, page_size=BUSIEST)
            rows = (await connection.stats_list("queues", query))["items"]
            busy = [row for row in rows if row.get("messages") or any((row.get("rates") or {}).values())]
            self._take(busy)
        self._turn += 1
        known = {(row["vhost"], row["name"]) for row in busy}
        for vhost, name in [place for place in samples.looked_at("queues", at) if place not in known]:
            try:
                self._take([await connection.stats_get("queues", vhost, name)])
            except NotFound:
                continue  # it was deleted since

    def _take(self, rows: list[dict[str, Any]]) -> None:
        at = now()
        for row in rows:
            self._facts.samples.take("queues", queue_row(row, self._facts.node), at)
