"""A gateway that the coordinator does not reach routes by what was: shards take nothing from it until it is back."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.messages.coordinator import Changes, FromCoordinator, Snapshot, TopologyApplied
from shardmq.bus.poller import Poller, context
from tests.bus.cable import Cable
from tests.hosts.members import Etcd
from tests.ports import free_ports
from tests.shards.driver import HEARD

from .moving import INSECURE, is_listening, until
from .replicated import ReplicatedBroker

CUT_OFF = "d"


@pytest.fixture
def broker(etcd: Etcd, tmp_path: Path) -> Iterator[ReplicatedBroker]:
    with ReplicatedBroker(tmp_path, etcd.url, f"fenced-{tmp_path.name}") as broker:
        yield broker


class Publisher(threading.Thread):
    """Publishes one message to the exchange `news` until it is confirmed."""

    def __init__(self, url: str, body: bytes) -> None:
        super().__init__(daemon=True)
        self._url, self._body = url, body
        self.is_confirmed = False

    def run(self) -> None:
        while not self.is_confirmed:
            with contextlib.suppress(errors.ShardmqError), shardmq.connect(self._url, timeout=5) as connection:
                connection.channel().basic_publish("news", "", self._body)
                self.is_confirmed = True


def bodies(channel: shardmq.Channel, queue: str) -> set[bytes]:
    """What is in a queue; it is not in it any more."""
    found = set()
    while (message := channel.basic_get(queue, auto_ack=True)) is not None:
        found.add(bytes(message.body))
    return found


def test_what_a_gateway_that_cannot_ask_etcd_publishes_reaches_the_queues_that_there_are(
    broker: ReplicatedBroker, etcd: Etcd
) -> None:
    cable = Cable(etcd.url)
    port = int(cable.address.rpartition(":")[2])
    broker.ports[CUT_OFF] = free_ports(1)[0]
    broker.start_gateway(CUT_OFF, broker.join.replace(etcd.url, f"etcd://127.0.0.1:{port}"))
    until(lambda: is_listening(broker.ports[CUT_OFF]))
    first = broker.hosts[0]
    with shardmq.connect(broker.url_of(first), timeout=60) as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "fanout", durable=True)
        channel.queue_declare("early", durable=True)
        channel.queue_bind("early", "news")
        with shardmq.connect(broker.url_of(CUT_OFF), timeout=60) as stale:
            stale.channel().basic_publish("news", "", b"before")

            cable.close()
            term = broker.group("coordinator").term
            broker.primary("coordinator").kill()
            broker.until_led_by_another("coordinator", term)
            until(lambda: is_bound(channel, "late"))

            publisher = Publisher(broker.url_of(CUT_OFF), b"after")
            publisher.start()
            publisher.join(3.0)
            assert not publisher.is_confirmed, "by a gateway that does not know all queues"

            cable = Cable(etcd.url, port)
            publisher.join(60.0)
            assert publisher.is_confirmed
        assert bodies(channel, "early") >= {b"before", b"after"}
        assert bodies(channel, "late") == {b"after"}
    cable.close()


def is_bound(channel: shardmq.Channel, queue: str) -> bool:
    with contextlib.suppress(errors.RequestError):
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "news")
        return True
    return False


class Gateway:
    """Links of a gateway to coordinator and shard, in the test's hands."""

    def __init__(self, broker: ReplicatedBroker) -> None:
        self._sockets = context(INSECURE)
        self.is_heard = True  # by the coordinator
        self.events: list[Any] = []
        self.coordinator = self._dial(broker, "coordinator", FromCoordinator)
        self.shard = self._dial(broker, "shard-0", HEARD)
        self.until(lambda: any(isinstance(event, Snapshot) for event in self.events))
        (snapshot,) = [event for event in self.events if isinstance(event, Snapshot)]
        self.shard.call_as(snapshot.broker, snapshot.generation)
        self.until(lambda: self.shard.is_open)

    def _dial(self, broker: ReplicatedBroker, group: str, heard: Any) -> Dialer[Any]:
        address = broker.addresses[broker.group(group).primary][group]
        return Dialer(self._sockets, address, "gateway", "z.gateway-0", heard, waits=group != "coordinator")

    def work(self) -> None:
        now = time.monotonic()
        links = [self.coordinator, self.shard] if self.is_heard else [self.shard]
        Poller([link.socket for link in links]).wait(0.01)
        for link in links:
            self.events += [*link.receive(), *link.tick(now)]

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60.0
        while not holds():
            assert time.monotonic() < deadline, self.events
            self.work()

    def say_applied(self) -> None:
        """Say to be at the newest topology that it heard of."""
        versions = [event.version for event in self.events if isinstance(event, Snapshot | Changes)]
        self.coordinator.post(TopologyApplied(max(versions)))
        self.coordinator.flush()

    def close(self) -> None:
        self.coordinator.close()
        self.shard.close()
        self._sockets.term()


def test_nothing_is_answered_that_a_lost_gateway_does_not_know_of_before_shards_have_ended_its_sessions(
    broker: ReplicatedBroker,
) -> None:
    gateway = Gateway(broker)
    gateway.say_applied()
    gateway.is_heard = False
    is_declared = threading.Event()

    def declare() -> None:
        with shardmq.connect(broker.url, timeout=60) as connection:
            connection.channel().queue_declare("new", durable=True)
            is_declared.set()

    thread = threading.Thread(target=declare, daemon=True)
    thread.start()
    while not is_declared.is_set():
        was_open = gateway.shard.is_open
        gateway.work()
    assert not (was_open and gateway.shard.is_open), "it could route by a topology without the queue"
    [lost] = [event for event in gateway.events if isinstance(event, LinkLost)]
    assert "the coordinator has lost it" in lost.reason
    began = time.monotonic()
    while time.monotonic() < began + 1.0:
        gateway.work()
    assert not gateway.shard.is_open

    gateway.is_heard = True
    gateway.until(lambda: gateway.shard.is_open)
    told = [event for event in gateway.events if isinstance(event, Snapshot | LinkOpened)]
    assert [type(event) for event in told[-2:]] == [Snapshot, LinkOpened], "it knows the queue first"
    thread.join()
    gateway.close()
