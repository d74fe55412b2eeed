"""The status of a broker with several gateways. Real processes."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker


@pytest.fixture
def pair(start_broker: Callable[..., Broker]) -> Broker:
    return start_broker(shards=2, gateways=2)


def gateways(connection: shardmq.Connection) -> dict[str, dict[str, Any]]:
    return {row["process"]: row for row in connection.status()["processes"] if row["role"] == "gateway"}


@contextlib.contextmanager
def one_connection(broker: Broker) -> Iterator[tuple[shardmq.Connection, str, str]]:
    """The only connection there is, the gateway that has it, and the other gateway."""
    with shardmq.connect(broker.url) as connection:
        rows = gateways(connection)
        (near,) = (name for name, row in rows.items() if row["connections"] == 1)
        (far,) = rows.keys() - {near}
        yield connection, near, far


def test_one_gateway_tells_of_all_processes(pair: Broker) -> None:
    with shardmq.connect(pair.url) as connection:
        state = connection.status()
    assert {row["process"]: row["pid"] for row in state["processes"]} == pair.pids
    assert not any("others" in row for row in state["processes"])


def test_connections_and_consumers_of_all_gateways_are_counted(pair: Broker) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(shardmq.connect(pair.url)) for _ in range(8)]
        connections[0].channel().queue_declare("watched")
        for connection in connections:
            connection.channel().basic_consume("watched", shardmq.Message.ack)
        seen = [[(row["connections"], row["consumers"]) for row in gateways(each).values()] for each in connections]
    assert all(rows == seen[0] for rows in seen)
    assert [sum(column) for column in zip(*seen[0], strict=True)] == [8, 8]


def test_a_gateway_that_is_silent_is_left_out_and_holds_nobody_up(pair: Broker) -> None:
    with one_connection(pair) as (connection, near, far):
        pair.kill(far, signal.SIGSTOP)
        try:
            asked_at = time.monotonic()
            state = connection.status()
            assert time.monotonic() - asked_at < 1.9  # what the coordinator is given, less than its own word would cost
        finally:
            pair.kill(far, signal.SIGCONT)
        assert {row["process"] for row in state["processes"]} == {"coordinator", near, "shard-0", "shard-1"}


def test_a_gateway_that_is_killed_while_it_is_asked_holds_nobody_up(pair: Broker) -> None:
    with one_connection(pair) as (connection, _, far):
        pair.kill(far)
        assert "coordinator" in {row["process"] for row in connection.status()["processes"]}
        pair.wait_for("ready", far)
        assert {row["process"]: row["pid"] for row in connection.status()["processes"]} == pair.pids
