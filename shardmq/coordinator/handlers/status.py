"""Gateways asked for their status, on behalf of one of them.

A client's `status` reaches one gateway, which has links to the shards and the coordinator. Only the coordinator has
links to the other gateways.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from shardmq.bus.listener import Peer
from shardmq.bus.messages.base import Answer, Call, Inspect

ANSWER_SECONDS: Final = 1.0
"""A gateway that does not answer for so long is left out: half of what a gateway waits for the coordinator."""

Table = dict[str, Any]


class Asker(Protocol):
    """Who wants to know: a gateway's request (`Responder`), or the coordinator itself."""

    @property
    def peer(self) -> Peer | None:
        """The gateway that is not to be asked."""

    def answer(self, result: Any) -> None:
        """Take what was answered."""


@dataclass(slots=True, eq=False)
class _Round:
    """A gateway's request, while other gateways are still to answer."""

    responder: Asker
    table: Table
    missing: set[Peer]
    since: float
    asked: Inspect
    others: list[Any] = field(default_factory=list)


class StatusCollector:
    """Collects the status of all gateways. Messages are only posted here; the owner flushes."""

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}
        self._number = 0
        self._silent: set[Peer] = set()  # have let a request's time pass, and have answered nothing since

    @property
    def is_busy(self) -> bool:
        """Whether a gateway is still to answer."""
        return bool(self._rounds)

    def begin(self, responder: Asker, table: Table, gateways: Iterable[Peer], now: float, asked: Inspect) -> None:
        """Answer a gateway with the coordinator's table, and in it, as `others`, those of all gateways but its own.

        Where a noun is asked for, with what all gateways but its own list under it, joined. A gateway that hangs would
        hold up each of the lists that a scrape takes: it is left out until it answers something.
        """
        self._number += 1
        missing = {gateway for gateway in gateways if gateway is not responder.peer} - self._silent
        self._rounds[self._number] = _Round(responder, table, missing, now, asked)
        for gateway in missing:
            gateway.post(Call(self._number, asked))
        self._end_if(self._number)

    def take(self, peer: Peer, answer: Answer[Any]) -> None:
        """Add a gateway's answer to the request that it belongs to."""
        self._silent.discard(peer)
        asked = self._rounds.get(answer.request)
        if asked is not None and peer in asked.missing:
            asked.missing.remove(peer)
            asked.others.append(answer.result)
            self._end_if(answer.request)

    def lose(self, peer: Peer) -> None:
        """Wait no more for a gateway that is gone, and drop its own requests."""
        self._silent.discard(peer)
        for number, asked in list(self._rounds.items()):
            asked.missing.discard(peer)
            if asked.responder.peer is peer:
                del self._rounds[number]
            else:
                self._end_if(number)

    def tick(self, now: float) -> None:
        """Answer without the gateways that are silent for too long."""
        for number, asked in list(self._rounds.items()):
            if now - asked.since >= ANSWER_SECONDS:
                self._silent |= asked.missing
                asked.missing.clear()
                self._end_if(number)

    def _end_if(self, number: int) -> None:
        asked = self._rounds[number]
        if not asked.missing:
            del self._rounds[number]
            if asked.asked.noun == "overview":
                others = [row for rows in asked.others for row in rows]
                result: Any = {**asked.table, "others": others}
            elif asked.asked.noun:
                result = [row for rows in asked.others for row in rows]
            else:
                result = {**asked.table, "others": asked.others}
            asked.responder.answer(result)
