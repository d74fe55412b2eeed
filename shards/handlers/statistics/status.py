"""The state of a shard, as `shardmq status` and statistics show it."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.listener import Responder
from shardmq.bus.messages.base import Inspect
from shardmq.bus.messages.stores import ChangeWatermarks
from shardmq.runtime.vitals import resources, vitals
from shardmq.runtime.watermarks import WatermarkMonitor
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.queues import Administration
from shardmq.shards.handlers.statistics.queues import Statistics
from shardmq.shards.handlers.transactions import Transactions
from shardmq.shards.state.shard import ShardState

Row = dict[str, Any]


class Status:
    """Answers what is asked of the shard as a whole.

    Args:
        state: of the shard.
        watermarks: whose alarms are told of.
        delays: what waits for a time.
        transactions: what is staged.
        administration: describes queues.
    """

    def __init__(
        self,
        state: ShardState,
        watermarks: WatermarkMonitor,
        delays: DelayedMessages,
        transactions: Transactions,
        administration: Administration,
    ) -> None:
        self._state = state
        self._watermarks = watermarks
        self._delays = delays
        self._transactions = transactions
        self._administration = administration
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            Inspect: self._inspect,
            ChangeWatermarks: self._change_watermarks,
            **Statistics(state, self._described).handlers,
        }

    def table(self) -> Row:
        """Return the state of this process, as `shardmq status` shows it."""
        return {
            **self._vitals(),
            "staged": self._transactions.table(),
            "queues": self._administration.tables(),
        }

    def _inspect(self, responder: Responder[Any], _message: Inspect) -> None:
        responder.answer(self.table())

    def _change_watermarks(self, responder: Responder[None], message: ChangeWatermarks) -> None:
        self._watermarks.change(message.memory_bytes, message.disk_free_bytes)
        responder.answer(None)

    def _vitals(self) -> Row:
        state = self._state
        return {
            **vitals(state.name, "shard"),
            "store": state.store.sizes(),
            "alarms": [mark.text for mark in self._watermarks.on.values()],
            "damaged": state.quarantine.table(),
            "delayed": self._delays.pending,
            **state.store.engine.replication(),
        }

    def _described(self, is_detailed: bool) -> Row:
        """The state of this process without its queues, and what it measures."""
        state = self._state
        row = {**self._vitals(), "limits": self._watermarks.limits, "alarms_on": sorted(self._watermarks.on)}
        if is_detailed:
            queues = state.queues.values()
            row |= {**resources(), "disk_free_bytes": state.store.space.room().free}
            row["dead_lettered"] = state.rates.counted("dead_letter", queues)
            row["segments"] = sum([hosted.queue.segments for hosted in queues])
            staged = self._transactions.table()
            row["staged_bytes"] = sum([each["bytes"] for each in staged])
            row["measures"] = {**state.measures.table(), "commit_seconds": state.buffer.commit_seconds.table()}
            flushes = state.store.engine.flush_seconds
            if flushes is not None:
                row["measures"]["flush_seconds"] = flushes.table()
        return row
