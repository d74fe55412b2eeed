"""Replicas that are made anew, or come back: how long that takes, and what it costs."""

import time
from typing import Final

from shardmq.client.sync.connection import connect
from shardmq.cmd.bench.compare.load import Figures
from shardmq.cmd.bench.hosts.replicated import NAMES, SHARD, Replicated
from shardmq.cmd.bench.hosts.traffic import Traffic

BODY: Final = bytes(1024)
STEP: Final = 100
"""Messages of one call: 100 KB."""

SMALL: Final = bytes(100)
SMALL_STEP: Final = 500
WINDOW: Final = 50_000
JOIN_SECONDS: Final = 300.0
BEFORE_SECONDS: Final = 5.0
"""So long is measured how fast is published when nobody joins, at most."""

TAIL_MESSAGES: Final = 20_000
TAIL_BYTES: Final = TAIL_MESSAGES * len(BODY)


def fill(url: str, queue: str, messages: int, body: bytes = SMALL, step: int = SMALL_STEP) -> None:
    """Publish messages and wait for their confirms."""
    window = WINDOW * len(SMALL) // len(body)
    with connect(url) as connection, connection.channel().publisher(window=window) as publisher:
        bodies = [body] * step
        for start in range(0, messages, step):
            publisher.publish_many("", queue, bodies[: min(step, messages - start)])


def rejoin(broker: Replicated) -> Figures:
    """The primary's host is killed, the other one takes messages, and the host comes back."""
    queue = broker.new_queue()
    primary = broker.primary()
    machine = broker.machines[primary]
    with Traffic("sdk", broker.url(primary), queue) as traffic:
        traffic.settle()
        machine.kill()
        traffic.settle_after(time.monotonic())
    fill(broker.url(primary), queue, TAIL_MESSAGES, BODY, STEP)
    received, began = machine.received_bytes(), time.monotonic()
    broker.launch(primary)
    broker.wait_until(lambda: primary in broker.group().in_sync, "the host that came back is in sync")
    seconds = time.monotonic() - began
    of_tail = (machine.received_bytes() - received) / TAIL_BYTES
    broker.await_up(primary)
    broker.wait_until_whole()
    broker.delete_queue(queue)
    return {"rejoin_ms": 1000 * seconds, "of_tail": of_tail}


def join(broker: Replicated, stored_bytes: int) -> Figures:
    """A host without any of it gets a replica of a shard that is published to and consumed from as fast as it can."""
    stored, busy = broker.new_queue(), broker.new_queue()
    fill(broker.url(), stored, max(1, stored_bytes // len(BODY)), BODY, STEP)
    group = broker.group()
    primary, leaver = group.primary, broker.follower()
    (newcomer,) = {*NAMES} - {*group.replicas}
    with Traffic("consume", broker.url(), busy), Traffic("load", broker.url(), busy) as traffic:
        traffic.settle(20_000)
        since = time.monotonic()
        time.sleep(BEFORE_SECONDS)
        began, before = time.monotonic(), broker.store_bytes(primary)
        broker.tell("shard", "move", SHARD, leaver, newcomer)
        broker.wait_until(lambda: newcomer in broker.group().in_sync, "the new replica is in sync", JOIN_SECONDS)
        ended, after = time.monotonic(), broker.store_bytes(primary)
        rates = traffic.rate(since, began), traffic.rate(began, ended)
    broker.wait_until_whole()
    for queue in (stored, busy):
        broker.delete_queue(queue)
    growth = 100 * max(0.0, after / before - 1)
    return {"join_s": ended - began, "rate_share": rates[1] / rates[0], "growth_percent": growth}
