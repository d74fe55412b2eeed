"""The broker's state, gathered from every process: what `shardmq status` shows."""

from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.base import Inspect
from shardmq.errors import RequestError
from shardmq.gateway.state.gateway import GatewayState

ANSWER_SECONDS: Final = 2.0
"""A process that does not answer within this time is left out. The coordinator asks other gateways in half of it."""


class _Gathering:
    def __init__(self, expected: int, reply: Reply) -> None:
        self._missing = expected
        self._reply = reply
        self.processes: list[dict[str, Any]] = []
        self.queues: list[dict[str, Any]] = []

    def take(self, outcome: Outcome) -> None:
        """Take the answer of a process, or that there is none."""
        if not isinstance(outcome, RequestError):
            if outcome["role"] == "shard":
                self.queues.extend(outcome.pop("queues"))
            elif outcome["role"] == "coordinator":
                self.processes.extend(outcome.pop("others"))
            self.processes.append(outcome)
        self._missing -= 1
        if self._missing == 0:
            self.processes.sort(key=lambda process: (process["role"], len(process["process"]), process["process"]))
            self.queues.sort(key=lambda queue: (queue["vhost"], queue["name"]))
            self._reply({"processes": self.processes, "queues": self.queues})


def gather(state: GatewayState, reply: Reply) -> None:
    """Ask every process how it is; the result has `processes` and `queues`, one table for each."""
    gathering = _Gathering(len(state.links) + 2, reply)
    gathering.take(state.table())
    state.coordinator.inspect(gathering.take, ANSWER_SECONDS)
    for link in state.links:
        link.ask(Inspect(), gathering.take, ANSWER_SECONDS)
