"""Statistics of queues: which come first, one by one, and all together."""

import heapq
import time
from collections.abc import Callable
from typing import Any, Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.statistics import QueueStatistics, RankQueues, ShardStatistics
from shardmq.errors import ReplyCode, RowDamaged
from shardmq.runtime.statistics.rates import add, named
from shardmq.shards.handlers.statistics.ages import Ages, first_unacked
from shardmq.shards.queues.tally import COUNTS
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.queue_rates import RATED, rates_of
from shardmq.shards.state.shard import ShardState

Row = dict[str, Any]
Value = Callable[[HostedQueue], float]


def _messages(hosted: HostedQueue) -> int:
    return hosted.queue.ready + hosted.queue.unacked


_NUMBERS: Final[dict[str, Value]] = {
    "messages": _messages,
    "ready": lambda hosted: hosted.queue.ready,
    "unacked": lambda hosted: hosted.queue.unacked,
    "delayed": lambda hosted: hosted.delayed,
    "reserved": lambda hosted: hosted.queue.reserved,
    "consumers": lambda hosted: len(hosted.consumers),
    "bytes": lambda hosted: hosted.queue.table(0)["bytes"],
    "segments": lambda hosted: hosted.queue.segments,
    "active_at": lambda hosted: 0.0 if hosted.sample is None else hosted.sample.moved_at,
}
"""Columns beside counters and rates."""


DELIVER_GET: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""What RabbitMQ sums up under that name: how messages leave a queue for a client."""


def value_of(column: str) -> Value | None:
    """What queues are ranked by; None where there is no such column."""
    kind, _, name = column.partition(".")
    if column == "counts.deliver_get":
        counted = [COUNTS.index(each) for each in DELIVER_GET]
        return lambda hosted: sum([hosted.queue.counts()[place] for place in counted])
    if column == "rates.deliver_get":
        rated = [RATED.index(each) for each in DELIVER_GET]
        return lambda hosted: 0.0 if hosted.sample is None else sum([hosted.sample.rates[place] for place in rated])
    if kind == "counts" and name in COUNTS:
        place = COUNTS.index(name)
        return lambda hosted: hosted.queue.counts()[place]
    if column == "rates.messages":
        first = RATED.index("ready")
        return lambda hosted: 0.0 if hosted.sample is None else sum(hosted.sample.rates[first:])
    if kind == "rates" and name in RATED:
        place = RATED.index(name)
        return lambda hosted: 0.0 if hosted.sample is None else hosted.sample.rates[place]
    return _NUMBERS.get(column)


class Statistics:
    """Answers what is asked of queues' statistics.

    Args:
        state: the queues.
        table: describes the process.
    """

    def __init__(self, state: ShardState, table: Callable[[bool], Row]) -> None:
        self._state = state
        self._table = table
        self._ages = Ages(state.buffer)
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            RankQueues: self._rank,
            QueueStatistics: self._describe,
            ShardStatistics: self._sum,
        }

    def _rank(self, responder: Responder[list[tuple[int, float]]], message: RankQueues) -> None:
        value = value_of(message.column)
        if value is None:
            responder.refuse(ReplyCode.PRECONDITION_FAILED, f"queues have no column '{message.column}' to sort by")
            return
        queues = self._state.queues
        found = [(value(hosted), -number) for number in message.queues if (hosted := queues.get(number)) is not None]
        pick = heapq.nlargest if message.reverse else heapq.nsmallest
        first = sorted(found, reverse=message.reverse)[: message.count] if message.count * 4 > len(found) else None
        responder.answer([(-number, rank) for rank, number in first or pick(message.count, found)])

    def _describe(self, responder: Responder[list[Row]], message: QueueStatistics) -> None:
        state, rows = self._state, []
        self._ages.begin()
        for number in message.queues:
            hosted = state.queues.get(number)
            out = state.quarantine.queues.get(number)
            if hosted is not None:
                try:
                    rows.append(self._row(hosted, message.is_detailed))
                except RowDamaged as damage:
                    state.take_out(damage)
                    out = state.quarantine.queues.get(number)
            if out is not None:
                rows.append(out.table())
        responder.answer(rows)

    def _row(self, hosted: HostedQueue, is_detailed: bool) -> Row:
        self._state.catch_up(hosted)
        queue, rates = hosted.queue, rates_of(hosted)
        table = queue.table(len(hosted.consumers))
        row = {
            **{name: table[name] for name in ("id", "ready", "unacked", "dying", "bytes", "segments")},
            "reserved": queue.reserved,
            "delayed": hosted.delayed + table["delayed"],
            "consumers": len(hosted.consumers),
            "counts": named(COUNTS, queue.counts()),
            "rates": {**rates, "messages": round(rates["ready"] + rates["unacked"], 3)},
            "idle_seconds": None if hosted.sample is None else round(time.monotonic() - hosted.sample.moved_at, 1),
            "head_at": self._ages.head_at(queue),
            "first_unacked": first_unacked(hosted),
        }
        for offset in ("first_offset", "next_offset"):
            if offset in table:
                row[offset] = table[offset]
        if is_detailed:
            row["producers"] = 0 if hosted.producers is None else len(hosted.producers)
            row["consumer_list"] = [
                {**consumer.table(), "oldest_unacked_at": at}
                for consumer, at in zip(hosted.consumers, self._ages.unacked_at(hosted), strict=True)
            ]
        return row

    def _sum(self, responder: Responder[Row], message: ShardStatistics) -> None:
        vhosts: dict[str, Row] = {}
        counts = {vhost: list(sums) for vhost, sums in self._state.rates.gone.items()}
        rates: dict[str, list[float]] = {}
        for hosted in self._state.queues.values():
            queue = hosted.queue
            vhost = queue.declared.vhost
            sums = vhosts.setdefault(vhost, {"queues": 0, "ready": 0, "unacked": 0})
            sums["queues"] += 1
            sums["ready"] += queue.ready
            sums["unacked"] += queue.unacked
            add(counts.setdefault(vhost, [0] * len(COUNTS)), queue.counts())
            if hosted.sample is not None:
                so_far = rates.setdefault(vhost, [0.0] * len(RATED))
                for place, rate in enumerate(hosted.sample.rates):
                    so_far[place] += rate
        for vhost, summed in counts.items():
            row = vhosts.setdefault(vhost, {"queues": 0, "ready": 0, "unacked": 0})
            row["counts"] = named(COUNTS, summed)
            row["rates"] = named(RATED, rates.get(vhost, [0.0] * len(RATED)))
        responder.answer({**self._table(message.is_detailed), "vhosts": vhosts})
