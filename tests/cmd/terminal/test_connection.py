"""Commands whose broker dies under them end, and say so: none waits for its return."""

import subprocess
from collections.abc import Callable

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.invocation import command, environment

StartBroker = Callable[..., Broker]


@pytest.fixture
def dying(start_broker: StartBroker) -> Broker:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        connection.channel().queue_declare("work", durable=True)
        connection.channel().basic_publish("", "work", b"1")
    return broker


@pytest.mark.parametrize(
    "words", [("consume", "work", "--follow"), ("status", "--watch", "--json")], ids=lambda w: w[0]
)
def test_a_command_ends_when_its_broker_dies(dying: Broker, words: tuple[str, ...]) -> None:
    with subprocess.Popen(
        command(*words), env=environment(SHARDMQ_URL=dying.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()  # it is at work
        dying.kill("gateway-0")
        _, said = running.communicate(timeout=20)
    assert running.returncode == 1
    assert said.startswith(b"Error: the broker at ")
    assert said.count(b"\n") == 1
