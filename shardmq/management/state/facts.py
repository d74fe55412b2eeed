"""What is known of this process and of the broker it manages."""

import asyncio
import socket
import time
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from shardmq.client.api.url import parse
from shardmq.definitions.export import RABBITMQ_VERSION
from shardmq.management.samples.store import Samples
from shardmq.management.state.login_counts import LoginCounts
from shardmq.management.state.shared import SharedAnswers
from shardmq.management.state.shares import ProcessorShares

LIKE_RABBITMQ: Final = RABBITMQ_VERSION
"""The version of RabbitMQ whose HTTP API this one resembles: clients compare it with what they need."""

SORTED_AT_ONCE: Final = 2
"""Long lists; more wait. One is made from the broker's pages while the other is sorted."""


@dataclass(slots=True)
class Facts:
    """What is the same for all who ask while this process serves.

    Attributes:
        url: of the broker.
        node: name of the broker as the one node that clients of RabbitMQ see.
        host: where this process listens.
        port: likewise; 0 before that where a free one is taken.
        is_tls: whether with TLS.
        started_at: seconds since 1970.
        shares: of the processor, that the broker's processes have.
        samples: of the broker and its objects.
        shared: answers that several get.
        logins: how many there were since they were last reset.
        redriving: redrives under way, by virtual host, queue and id.
        moves: one at a time of each user out of a queue, by virtual host, queue and user: they reserve under one name.
        sorting: for long lists to be sorted, a few at once: each has some hundred rows in memory meanwhile.
    """

    url: str
    node: str
    host: str
    port: int
    is_tls: bool = False
    started_at: float = field(default_factory=time.time)
    shares: ProcessorShares = field(default_factory=ProcessorShares)
    samples: Samples = field(default_factory=Samples)
    shared: SharedAnswers = field(default_factory=SharedAnswers)
    logins: LoginCounts = field(default_factory=LoginCounts)
    redriving: set[tuple[str, str, str]] = field(default_factory=set)
    moves: "WeakValueDictionary[tuple[str, str, str], asyncio.Lock]" = field(default_factory=WeakValueDictionary)
    sorting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SORTED_AT_ONCE))

    def moving(self, vhost: str, queue: str, user: str) -> asyncio.Lock:
        """What to hold while messages of a queue are moved."""
        return self.moves.setdefault((vhost, queue, user), asyncio.Lock())


def node_name(url: str) -> str:
    """The node's name: of the host where the broker is."""
    host = parse(url).host
    return f"shardmq@{socket.gethostname() if host in ('localhost', '127.0.0.1', '::1') else host}"
