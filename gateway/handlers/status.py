"""The broker's state, gathered from every process: what `shardmq status` shows."""

from typing import Any, Final

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.base import Inspect
from shardmq.gateway.handlers.replies import AnswerCollector
from shardmq.gateway.state.gateway import GatewayState

ANSWER_SECONDS: Final = 2.0
"""A process that does not answer within this time is left out. The coordinator asks other gateways in half of it."""


def gather(state: GatewayState, reply: Reply) -> None:
    """Ask every process for its status; the result has `processes` and `queues`, one table for each.

    In a broker on several hosts it has `hosts`, `groups` of replicas and `findings` as well, and where processes run.
    """

    def join(processes: list[dict[str, Any]]) -> None:
        queues: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for table in processes:
            queues += table.pop("queues") if table["role"] == "shard" else ()
            others += table.pop("others") if table["role"] == "coordinator" else ()
        processes = sorted([*processes, *others], key=lambda row: (row["role"], len(row["process"]), row["process"]))
        queues.sort(key=lambda row: (row["vhost"], row["name"]))
        result = {"processes": processes, "queues": queues}
        reply(result if state.primaries is None else {**result, **state.primaries.standing(processes)})

    collector = AnswerCollector(len(state.links) + 2, join)
    collector.take(state.table())
    state.coordinator.inspect(collector.take, ANSWER_SECONDS)
    for link in state.links:
        link.look(Inspect(), collector.take, ANSWER_SECONDS)
