"""What is measured, and who publishes what to which queue."""

import struct
from typing import Any, Final

import msgspec

from shardmq.client.core.batching import window_of

BATCH_RECORDS: Final = 500
"""Messages in one batch of mode bulk."""

STAMP: Final = struct.Struct("<QQ")
"""Head of every body: the number of the message, and its time of publishing (CLOCK_MONOTONIC, ns)."""

NUMBER_BITS: Final = 40
"""A message's number is its producer's, shifted by this many bits, plus its place among that producer's messages."""

MESSAGES: Final = {"bulk": 1_000_000, "pipelined": 200_000, "sync": 2_000, "latency": 10_000}
"""Default number of messages: a few seconds' worth."""

WINDOWS: Final = {"bulk": 50_000, "sync": 1, "latency": 10_000}
"""Messages a producer has unconfirmed at most; in mode pipelined, what the SDK has unless it is told otherwise."""

PREFETCHES: Final = {"bulk": 50_000, "pipelined": 10_000, "sync": 1_000, "latency": 10_000}
"""Messages a consumer has unacked at most."""


class Feature(msgspec.Struct, frozen=True):
    """Something a queue, or its messages, can have.

    Attributes:
        arguments: of the queue.
        properties: of each message.
        priorities: of messages, in turn; so many in a row have the same (`priority_step`).
        priority_step: 1 makes every message a record batch of its own on its way through the broker.
    """

    arguments: dict[str, Any] = {}
    properties: dict[str, str] = {}
    priorities: tuple[int, ...] = ()
    priority_step: int = 1


LONG_MS: Final = 3_600_000
"""A time to live that is longer than any measurement."""

PRIORITIES: Final = tuple(range(11))

FEATURES: Final = {
    "plain": Feature(),
    "properties": Feature(properties={"content_type": "text/plain"}),
    "ttl of the queue": Feature({"x-message-ttl": LONG_MS}),
    "ttl of messages": Feature(properties={"expiration": str(LONG_MS)}),
    "priority, blocks of 500": Feature({"x-max-priority": 10}, priorities=PRIORITIES, priority_step=500),
    "priority, alternating": Feature({"x-max-priority": 10}, priorities=PRIORITIES),
    "dead-letter exchange": Feature({"x-dead-letter-exchange": "amq.fanout"}),
    "max-length": Feature({"x-max-length": 10**9, "x-max-length-bytes": 10**12}),
}
"""What `bench features` measures, by name. All others are compared with the first; the second shows what a property
costs that means nothing to the broker."""


class Settings(msgspec.Struct, frozen=True):
    """One measurement.

    Attributes:
        mode: bulk (publish_many, batches of 500), pipelined (a call for each message, a window of them unconfirmed),
            sync (one unconfirmed), latency (pipelined, at a fixed rate whatever the broker does).
        url: the broker.
        messages: in all.
        size: bytes of a body.
        queues: number of queues; producers publish to them in turn.
        producers: processes.
        consumers: processes; they share the queues out among themselves. With none, publishing alone is measured.
        rate: messages a second of all producers together, in mode latency.
        transient: messages and queues that do not survive a restart.
        timeout: seconds after which the measurement is given up.
        feature: what queues and messages have that plain ones have not (`FEATURES`).
    """

    mode: str
    url: str
    messages: int
    size: int
    queues: int
    producers: int
    consumers: int
    rate: float
    transient: bool
    timeout: float
    feature: str = "plain"

    @property
    def window(self) -> int:
        """Messages a producer has unconfirmed at most."""
        return WINDOWS.get(self.mode) or window_of(self.queues)

    @property
    def prefetch(self) -> int:
        """Messages a consumer has unacked at most."""
        return PREFETCHES[self.mode]

    @property
    def step(self) -> int:
        """Messages in a row that go to the same queue."""
        return BATCH_RECORDS if self.mode == "bulk" else 1

    def share(self, producer: int) -> int:
        """How many messages a producer publishes."""
        return self.messages // self.producers + (producer < self.messages % self.producers)

    def steps(self, producer: int) -> list[tuple[int, int]]:
        """What a producer publishes, step by step: (queue, messages)."""
        share, step = self.share(producer), self.step
        return [
            ((producer + place) % self.queues, min(step, share - start))
            for place, start in enumerate(range(0, share, step))
        ]

    def expected(self) -> list[int]:
        """How many messages each queue gets."""
        counts = [0] * self.queues
        for producer in range(self.producers):
            for queue, count in self.steps(producer):
                counts[queue] += count
        return counts

    def readers(self) -> list[list[int]]:
        """The queues each consumer reads. Every queue is read by somebody, every consumer reads something."""
        if self.consumers >= self.queues:
            return [[consumer % self.queues] for consumer in range(self.consumers)]
        return [list(range(consumer, self.queues, self.consumers)) for consumer in range(self.consumers)]
