"""`shardmq bench delays`: how punctually many delayed messages are delivered."""

import os
import secrets
import signal
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from shardmq.cmd.bench.scale.rows import of_delays, record
from shardmq.cmd.bench.settings import STAMP
from shardmq.cmd.terminal.numbers import Number, WholeNumber
from shardmq.cmd.terminal.options import JSON, RECORD, URL
from shardmq.cmd.terminal.output import narrator, print_json
from shardmq.cmd.terminal.tables import print_facts
from shardmq.cmd.terminal.values import counted
from shardmq.errors import ShardmqError, Timeout

if TYPE_CHECKING:
    from shardmq.client.sync.channel import Channel
    from shardmq.client.sync.connection import Connection

BATCH_RECORDS: Final = 500
"""Messages that are due together; each of their publishes has a delay of its own."""

WINDOW: Final = 10_000
"""Most unconfirmed messages: few, because the time until a message is stored counts as lateness."""

PREFETCH: Final = 50_000
RETURN_SECONDS: Final = 60.0
"""Killed shards must be back within this time."""


@click.command()
@URL
@click.option("--messages", type=WholeNumber(1), default=1_000_000, show_default=True, help="Number of messages.")
@click.option("--size", type=WholeNumber(STAMP.size, 65_536), default=100, show_default=True, help="Bytes of a body.")
@click.option(
    "--lead",
    type=Number(1, 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from the start until the first message is due; all must be published before.",
)
@click.option(
    "--spread",
    type=Number(0.1, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from the first message that is due to the last.",
)
@click.option("--kill", is_flag=True, help="Kill the shards (SIGKILL) while all messages wait; only on this machine.")
@click.option(
    "--timeout",
    type=Number(1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up this long after the last message was due.",
)
@RECORD
@JSON
def delays(
    *,
    url: str,
    messages: int,
    size: int,
    lead: float,
    spread: float,
    kill: bool,
    timeout: float,
    record_to: Path | None,
    as_json: bool,
) -> None:
    """Publish messages due between --lead and --lead + --spread seconds from now, and measure how late they arrive.

    Lateness is the time from when a message was due, by the clock of this process, to its delivery.
    """
    from shardmq.client.sync.connection import connect
    from shardmq.cmd.bench.results import percentile

    say = narrator(as_json)
    queue = f"bench-{secrets.token_hex(4)}"
    with connect(url, timeout=timeout) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        try:
            before = shard_bytes(connection)
            first_due = time.monotonic() + lead
            seconds = publish(channel, queue, messages, size, first_due, spread)
            pending = shard_bytes(connection)
            say(f"{counted(messages, 'message')} published in {seconds:.1f} s, {messages / seconds:,.0f} a second")
            if kill:
                back = kill_shards(connection)
                say(f"all shards were killed and are back after {back:.1f} s")
            after = shard_bytes(connection)
            lateness = consume(channel, queue, messages, first_due + spread + timeout)
        finally:
            channel = connection.channel() if not channel.is_open else channel
            channel.queue_delete(queue)
    figures = {
        "publish_msgs_per_s": round(messages / seconds, 1),
        "late_ms": {
            name: percentile(lateness, share) for name, share in (("min", 0), ("p50", 0.5), ("p99", 0.99), ("max", 1))
        },
        "shards_rss_bytes": {"before": before, "pending": pending, "after_kill": after if kill else None},
        "settings": {"messages": messages, "size": size, "lead": lead, "spread": spread, "kill": kill},
    }
    if record_to is not None:
        record(record_to, of_delays(figures))
    if as_json:
        print_json(figures)
    else:
        print_figures(figures)


def shard_bytes(connection: "Connection") -> dict[str, int]:
    """Resident bytes of each shard."""
    processes = connection.status()["processes"]
    return {process["process"]: process["rss_bytes"] for process in processes if process["role"] == "shard"}


def publish(channel: "Channel", queue: str, messages: int, size: int, first_due: float, spread: float) -> float:
    """Publish all messages; returns the seconds it took.

    Raises:
        ShardmqError: the first is due before the last is published.
    """
    padding = bytes(size - STAMP.size)
    started_at = time.monotonic()
    with channel.publisher(window=WINDOW) as publisher:
        for start in range(0, messages, BATCH_RECORDS):
            count = min(BATCH_RECORDS, messages - start)
            due = first_due + spread * start / messages
            delay_ms = round((due - time.monotonic()) * 1000)
            if delay_ms < 1:
                raise ShardmqError(f"only {start:,} messages were published before some were due; give more --lead")
            tail = padding
            stamp = int(due * 1e9)
            bodies = [STAMP.pack(number, stamp) + tail for number in range(start, start + count)]
            publisher.publish_many("", queue, bodies, delay_ms=delay_ms)
    seconds = time.monotonic() - started_at
    if time.monotonic() > first_due:
        raise ShardmqError(f"publishing took {seconds:.1f} s and the first were due before its end; give more --lead")
    return seconds


def kill_shards(connection: "Connection") -> float:
    """Kill all shards and wait until their successors answer; returns the seconds it took.

    Raises:
        ShardmqError: a shard is on another machine, or this user may not kill it.
        Timeout: the shards did not come back.
    """
    old = {row["process"]: row["pid"] for row in connection.status()["processes"] if row["role"] == "shard"}
    started_at = time.monotonic()
    for name, pid in old.items():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError as fault:
            raise ShardmqError(f"{name} (process {pid}) cannot be killed from here: {fault.strerror}") from fault
    while time.monotonic() < started_at + RETURN_SECONDS:
        rows = [row for row in connection.status()["processes"] if row["role"] == "shard"]
        if len(rows) == len(old) and all(row["pid"] != old[row["process"]] for row in rows):
            return time.monotonic() - started_at
        time.sleep(0.1)
    raise Timeout(f"not all shards are back after {RETURN_SECONDS:.0f} s; does a supervisor start them again?")


def consume(channel: "Channel", queue: str, messages: int, deadline: float) -> list[int]:
    """Consume all messages; returns the lateness of each in ns, sorted.

    Raises:
        ShardmqError: messages were lost or delivered twice.
    """
    lateness: list[int] = []
    seen = bytearray(messages)
    again = 0
    head = STAMP.size
    while len(lateness) < messages and time.monotonic() < deadline:
        patience = max(0.1, deadline - time.monotonic())
        for batch in channel.consume_batches(queue, prefetch=PREFETCH, inactivity_timeout=patience):
            now = time.monotonic_ns()
            stamps = array("Q", b"".join([body[:head] for body in batch.bodies]))
            batch.ack()
            for number in stamps[::2]:
                again += seen[number]
                seen[number] = 1
            lateness.extend([now - due for due in stamps[1::2]])
            if len(lateness) >= messages:
                break
    missing = seen.count(0)
    if missing or again:
        raise ShardmqError(f"of {messages:,} messages {missing:,} did not come and {again:,} came more than once")
    lateness.sort()
    return lateness


def print_figures(figures: dict[str, Any]) -> None:
    """Print the figures for people."""
    from shardmq.cmd.terminal.values import size

    late = figures["late_ms"]
    facts = {
        "published, confirmed": f"{figures['publish_msgs_per_s']:,.0f} msgs/s",
        "late p50 / p99 / max": f"{late['p50']:.1f} / {late['p99']:.1f} / {late['max']:.1f} ms",
        "earliest": f"{late['min']:.1f} ms",
    }
    for moment, shards in figures["shards_rss_bytes"].items():
        if shards:
            facts[f"memory of shards, {moment.replace('_', ' ')}"] = ", ".join(size(rss) for rss in shards.values())
    print_facts(f"{figures['settings']['messages']:,} delayed messages", facts)
