"""A loop around clients of etcd, as the processes have one, and answers as values for tests."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from shardmq.bus.poller import Poller
from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.messages import Request
from shardmq.replication.etcd.url import parse
from shardmq.runtime.clock import boottime

T = TypeVar("T")

SECONDS = 20.0
"""Until a test gives up; on a busy machine, etcd takes seconds for an election."""


def run(clients: list[EtcdClient], until: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Turn clients until something holds."""
    poller = Poller([client.fileno() for client in clients])
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "it takes too long"
        poller.wait(min(1.0, *(client.wait_seconds() for client in clients)))
        for client in clients:
            client.turn()


class Asker:
    """One client and its loop.

    Args:
        url: of etcd.
    """

    def __init__(self, url: str) -> None:
        self.client = EtcdClient(parse(url))

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def until(self, holds: Callable[[], Any], seconds: float = SECONDS) -> None:
        run([self.client], holds, seconds)

    def outcome(self, ask: Callable[[Callable[[T], None]], object]) -> T:
        """What a call is answered: `outcome(lambda done: register.read(…, done))`."""
        outcomes: list[T] = []
        ask(outcomes.append)
        self.until(lambda: outcomes)
        assert len(outcomes) == 1
        return outcomes[0]

    def ask(self, request: Request[T], seconds: float = SECONDS) -> Any:
        """The answer to a request, or the error."""
        return self.outcome(lambda done: self.client.ask(request, boottime() + seconds, done))
