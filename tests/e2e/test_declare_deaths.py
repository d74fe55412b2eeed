"""A queue is declared, and its coordinator or its shard dies in between: it is there, once, or nobody has it."""

import contextlib
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.conftest import StartBroker

from .traffic import bodies, until


def ids(connection: shardmq.Connection, name: str) -> list[int]:
    """The ids under which shards have a queue of that name."""
    return [table["id"] for table in connection.status()["queues"] if table["name"] == name]


def is_written(broker: Broker, process: str, name: str) -> bool:
    """Whether a queue is in the store of a process."""
    files = [path for path in Path(broker.data_dir, process).iterdir() if path.is_file()]
    return any(name.encode() in path.read_bytes() for path in files)


def declare_without_room(broker: Broker, connection: shardmq.Connection, names: list[str]) -> bool:
    """Declare queues while the coordinator cannot write; returns whether it died of that, and its successor did it.

    A coordinator that looks at its disk before the declarations come refuses them.
    """
    with ThreadPoolExecutor() as pool:
        channels = [connection.channel() for _ in names]
        limit = resource.RLIM_INFINITY, resource.RLIM_INFINITY
        known, pid = len(broker.notices), broker.pids["coordinator"]
        broker.kill("coordinator", signal.SIGSTOP)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limit[1]))
        declared = [
            pool.submit(channel.queue_declare, name, durable=name.startswith("durable"))
            for name, channel in zip(names, channels, strict=True)
        ]
        broker.kill("coordinator", signal.SIGCONT)
        refused = [each.exception(20) for each in declared]
        if any(refused):
            assert all(error is None or "the disk of the coordinator is full" in str(error) for error in refused)
            with contextlib.suppress(ProcessLookupError):  # it died of one, and refused the other
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
            return False
        broker.wait_for("ready", "coordinator", after=known)
        return True


def test_what_a_coordinator_told_a_shard_and_could_not_write_is_forgotten(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        # On a loaded machine, most declarations come too late.
        attempts = ([f"durable-{turn}", f"transient-{turn}"] for turn in range(100))
        names = next(names for names in attempts if declare_without_room(broker, connection, names))
        channel = connection.channel()
        for name in names:
            until(lambda: len(ids(connection, name)) == 1, "what was lost is forgotten")  # noqa: B023
            channel.basic_publish("", name, b"x")
            assert bodies(channel, name) == [b"x"]
        broker.kill_and_wait("shard-0")
        channel.queue_delete(names[0])
        until(lambda: not ids(connection, names[0]), "it is deleted")


@pytest.mark.parametrize("victim", ["coordinator", "shard-0"])
def test_whoever_dies_before_the_shard_has_answered_the_queue_is_there_once(
    start_broker: StartBroker, victim: str
) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection, ThreadPoolExecutor() as pool:
        channel = connection.channel()
        broker.kill("shard-0", signal.SIGSTOP)
        declared = pool.submit(channel.queue_declare, "between", durable=True)
        until(lambda: is_written(broker, "coordinator", "between"), "the coordinator has it on disk")
        broker.kill_and_wait(victim)
        if victim != "shard-0":
            broker.kill("shard-0", signal.SIGCONT)
        assert declared.result(20) == shardmq.QueueDeclared("between", 0, 0)
        until(lambda: is_written(broker, "shard-0", "between"), "the shard writes it, though nobody uses it")
        channel.basic_publish("", "between", b"x")
        assert len(ids(connection, "between")) == 1
        assert bodies(channel, "between") == [b"x"]


def test_what_comes_for_a_queue_is_kept_with_it_though_its_coordinator_says_no_more(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("plain", durable=True)
        channel.queue_declare("levels", durable=True, arguments={"x-max-priority": 5})
        channel.queue_declare("later", durable=True)
        channel.topic_declare("topic", partitions=1)
        channel.queue_declare("unused", durable=True)
        broker.kill("coordinator", signal.SIGSTOP)
        channel.basic_publish("", "plain", b"1")
        channel.basic_publish("", "levels", b"2", shardmq.Properties(priority=3))
        channel.basic_publish("", "later", b"3", delay_ms=200)
        channel.basic_publish("topic", "", b"4")
        broker.kill_and_wait("shard-0")
        got = {name: bodies(channel, name) for name in ("plain", "levels")}
        assert got == {"plain": [b"1"], "levels": [b"2"]}
        until(lambda: bodies(channel, "later") == [b"3"], "it is due")
        assert channel.queue_declare("topic-0", passive=True).messages == 1
        broker.kill("coordinator", signal.SIGCONT)
        until(lambda: ids(connection, "unused"), "the shard hears of it again")
        channel.basic_publish("", "unused", b"5")
        assert bodies(channel, "unused") == [b"5"]
