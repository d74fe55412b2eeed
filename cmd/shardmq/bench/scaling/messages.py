"""Messages published and consumed over AMQP, as gateways and shards grow: what each process takes of a message."""

import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from shardmq.cmd.bench.compare.load import Contestant, Load, compiled_program, run_load
from shardmq.cmd.bench.scaling.processes import Processes, started_in
from shardmq.cmd.bench.scaling.rows import LAYOUTS, MESSAGES, Point, Scaled, empty_scaled, point, scaled
from shardmq.cmd.bench.scaling.usage import between, used_by
from shardmq.cmd.terminal.output import Say
from shardmq.errors import ShardmqError

EMPTY: Final = empty_scaled(MESSAGES)

CLIENTS: Final = 2
"""Programs that make the load: with two gateways each has one."""

QUEUES: Final = 8
"""Of each program: messages go to them in turn, so that every shard has some."""

TIMEOUT_SECONDS: Final = 120.0


def measure(disk: Path, count: int, turns: int, say: Say) -> list[Scaled]:
    """Measure all layouts.

    Args:
        disk: folder on the disk that brokers write to.
        count: messages of each measurement.
        turns: of each, after one that does not count.
        say: is told how it goes.

    Raises:
        Absent: what compiles the program is not installed.
        ShardmqError: a message is lost, doubled or out of order.
    """
    found: list[Scaled] = []
    with tempfile.TemporaryDirectory(prefix="shardmq-scaling-") as place:
        program = compiled_program(Path(place))
        for layout in LAYOUTS:
            with started_in(disk, *layout) as processes:
                points = [_turn(program, processes, count) for _ in range(turns + 1)]
            found.append(scaled(MESSAGES, layout, points[1:]))
            say(f"{layout[0]} gateways, {layout[1]} shards: {found[-1].rate:,.0f} msgs/s, µs {found[-1].cpu_us}")
    return found


def _turn(program: Sequence[str], processes: Processes, count: int) -> Point:
    share = count // CLIENTS
    load = Load("amqp", "flow", 1, {"queues": QUEUES, "global": 1})
    rates: list[float] = []
    failures: list[ShardmqError] = []

    def work(port: int) -> None:
        try:
            figures = run_load(program, load, Contestant("shardmq", port), share, TIMEOUT_SECONDS)
            rates.append(figures["end_to_end_msgs_per_s"])
        except ShardmqError as fault:
            failures.append(fault)

    ports = [processes.ports[number % len(processes.ports)] for number in range(CLIENTS)]
    threads = [threading.Thread(target=partial(work, port)) for port in ports]
    before = used_by(processes.pids)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    # Without the time that programs take to start and to declare.
    return point(share * CLIENTS, share * CLIENTS / sum(rates), between(before, used_by(processes.pids)))
