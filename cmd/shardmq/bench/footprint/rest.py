"""A start, and what a broker takes at rest: processor time, memory, and memory for idle connections."""

import statistics
import time
from pathlib import Path
from typing import Any, Final

from shardmq.cmd.bench.compare.backlog_program import AS_INSTALLED
from shardmq.cmd.bench.compare.comparison import cpu_seconds
from shardmq.cmd.bench.footprint.processes import settle
from shardmq.cmd.bench.scale.connection_holders import raise_file_limit
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.terminal.output import Say
from shardmq.errors import ShardmqError

STARTS: Final = 5


def rows(folder: Path, seconds: float, connections: int, say: Say) -> list[dict[str, Any]]:
    """Measure; returns the rows of a file of results.

    Args:
        folder: on the disk that the broker writes to.
        seconds: how long processor time is counted.
        connections: idle AMQP connections that are opened.
        say: is told each row.
    """
    starts = [start_seconds(folder / f"start-{number}") for number in range(STARTS)]
    found = [
        {
            "id": "start",
            "what": "`up --shards 4` from start to ready, the median of 5 starts (least … most)",
            "measured": f"{statistics.median(starts):.2f} s ({min(starts):.2f} … {max(starts):.2f})",
            "asked": "3 s",
        }
    ]
    with Broker(folder / "rest", variables=AS_INSTALLED) as broker:
        found += at_rest(broker, seconds)
        found.append(idle_connections(broker, connections))
    for row in found:
        say(f"{row['what']}: {row['measured']}")
    return found


def start_seconds(folder: Path) -> float:
    """How long a start takes, with nothing stored."""
    broker = Broker(folder, variables=AS_INSTALLED)
    began = time.perf_counter()
    try:
        broker.start()
        return time.perf_counter() - began
    finally:
        broker.close()


def at_rest(broker: Broker, seconds: float) -> list[dict[str, str]]:
    """Processor time and memory of a broker that nobody uses."""
    memory = settle(broker.pids)
    pids = (broker.pid, *broker.pids.values())
    before = cpu_seconds(pids)
    time.sleep(seconds)
    share = (cpu_seconds(pids) - before) / seconds
    least, most = min(memory.values()) / 1e6, max(memory.values()) / 1e6
    return [
        {
            "id": "idle",
            "what": "at rest: processor, all processes together",
            "measured": f"{100 * share:.1f} % of a core",
            "asked": "2 %",
        },
        {
            "id": "memory",
            "what": "at rest: memory of each process",
            "measured": f"{least:.0f} to {most:.0f} MB",
            "asked": "70 MB",
        },
    ]


def idle_connections(broker: Broker, connections: int) -> dict[str, str]:
    """Memory of the gateway for each AMQP connection with a channel, of which nothing is heard.

    Raises:
        ShardmqError: a connection cannot be opened.
    """
    import pika
    from pika.exceptions import AMQPError

    raise_file_limit()
    gateway = {"gateway": broker.pids["gateway-0"]}
    before = settle(gateway)["gateway"]
    parameters = pika.ConnectionParameters("127.0.0.1", broker.port, heartbeat=0)
    opened: list[Any] = []
    try:
        for _ in range(connections):
            opened.append(pika.BlockingConnection(parameters))
            opened[-1].channel()
        after = settle(gateway)["gateway"]
    except AMQPError as fault:
        raise ShardmqError(f"connection {len(opened) + 1:,} over AMQP cannot be opened: {fault!r}") from fault
    finally:
        for connection in opened:
            if connection.is_open:
                connection.close()
    return {
        "id": "amqp_connection",
        "what": f"an idle AMQP connection with a channel: memory of the gateway, one of {connections:,}",
        "measured": f"{(after - before) / connections / 1000:.1f} kB",
        "asked": "",
    }
