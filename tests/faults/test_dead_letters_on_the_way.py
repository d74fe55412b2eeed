"""Dead letters while those who are to carry them come and go: none is lost."""

import contextlib
import time
from collections.abc import Callable

import psutil

import shardmq
from shardmq.cmd.run.broker import Broker

from .saboteur import queue_table, until
from .test_sabotage import frozen

StartBroker = Callable[..., Broker]
LETTERS = 2000
HANDING_SECONDS = 1.5
"""The successor starts and shards call it, without anybody telling us. Too short, the test would prove less."""


def test_a_gateway_that_does_not_know_the_topology_yet_loses_no_dead_letters(start_broker: StartBroker) -> None:
    """Its predecessor dies with letters under way; shards hand them on before the coordinator has said a word."""
    broker = start_broker(shards=2)
    with shardmq.connect(broker.url, timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare("home", durable=True)
        shards = {table["name"]: table["shard"] for table in connection.topology("queues")}
        source = ""
        while shards.get(source, shards["home"]) == shards["home"]:
            source = f"source-{len(shards)}"
            terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "home"}
            channel.queue_declare(source, durable=True, arguments=terms)
            shards = {table["name"]: table["shard"] for table in connection.topology("queues")}
        with channel.publisher() as publisher:
            publisher.publish_many("", source, [b"%d" % number for number in range(LETTERS)])
        messages = channel.consume(source, prefetch=LETTERS)
        held = [next(messages) for _ in range(LETTERS)]
        with frozen(broker, f"shard-{shards['home']}"):
            for message in held:
                message.nack(requeue=False)
            channel.flush()
            until(lambda: queue_table(connection, source).get("dying") == LETTERS, "all are dying")
            known = len(broker.notices)
            with frozen(broker, "coordinator"):
                dead = broker.kill("gateway-0")
                until(lambda: gateway(broker) not in (None, dead), "it has a successor")
                time.sleep(HANDING_SECONDS)
        broker.wait_for("ready", "gateway-0", after=known)
        until(lambda: queue_table(connection, source).get("valid") == 0, "all have left")
        arrived = {int(message.body) for message in channel.consume("home", auto_ack=True, inactivity_timeout=1.0)}
        assert arrived == set(range(LETTERS))


def gateway(broker: Broker) -> int | None:
    """The process that is gateway 0 now, ready or not."""
    for process in psutil.Process(broker.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "gateway-0" in process.cmdline():
                return int(process.pid)
    return None
