"""pika, Celery and the Java client, with their own recoveries, while hosts die: nothing confirmed is lost."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pika
import pytest

from shardmq.bus.link import BUS_PROTOCOL
from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.amqp.conftest import find_peer
from tests.hosts.clients.loopback import NAMES, LoopbackBroker
from tests.hosts.clients.programs import Client, Programs
from tests.hosts.members import Etcd
from tests.running import without

__all__ = ("find_peer",)

CLIENTS: Final = ("pika", "Celery", "Java")
GOES_ON: Final = 10
"""So many messages more, confirmed and consumed, show that a client goes on."""

COMPILE_SECONDS: Final = 300.0

LAST_SECONDS: Final = 20.0
"""For the last messages to be consumed, where none is lost."""


class Story:
    """What befalls the broker while the clients publish and consume.

    Args:
        broker: the broker.
        clients: by name.

    Attributes:
        killed: the hosts that were killed.
    """

    def __init__(self, broker: LoopbackBroker, clients: dict[str, Client]) -> None:
        self.clients = clients
        self.killed: list[str] = []
        self._broker = broker

    def all_go_on(self) -> None:
        """Wait until each client has published and consumed more; one that ended is looked at by its own test."""
        counts = {name: client.counts for name, client in self.clients.items()}
        for name, client in self.clients.items():
            sent, taken = counts[name]

            def goes_on(client: Client = client, sent: int = sent, taken: int = taken) -> bool:
                now = client.counts
                return not client.is_well or (now[0] >= sent + GOES_ON and now[1] >= taken + GOES_ON)

            self._broker.wait_for(goes_on, f"{name} goes on\n{client.said}")

    def transfer(self) -> None:
        """Have shard 0 led by a host that leads neither it nor the coordinator."""
        leaders = {self._broker.primary("coordinator"), self._broker.primary("shard-0")}
        self._broker.transfer("shard-0", min({*NAMES} - leaders))

    def kill(self, group: str) -> None:
        """Kill the host that leads a group, and wait for another one to lead it."""
        host = self._broker.primary(group)
        self.killed.append(host)
        self._broker.kill(host)
        self._broker.wait_for(lambda: self._broker.primary(group) != host, f"another host leads {group}")

    def tell_news(self) -> None:
        """Publish to the queues that clients have for themselves."""
        address = self._broker.addresses[self._broker.primary("coordinator")]
        login = pika.PlainCredentials("app", "secret")
        with contextlib.closing(
            pika.BlockingConnection(pika.ConnectionParameters(address, self._broker.port, "/", login))
        ) as connection:
            connection.channel().basic_publish("amq.fanout", "", b"news")

    def end(self) -> None:
        """Note what is confirmed, and wait for all of it to be consumed; what is not is told by a client's own test."""
        for client in self.clients.values():
            client.note()
        with contextlib.suppress(AssertionError):
            self._broker.wait_for(
                lambda: all(client.has_all for client in self.clients.values()), "all is consumed", LAST_SECONDS
            )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackBroker]:
    """A broker that is not started yet."""
    try:
        with Etcd(size=1) as etcd:
            broker = LoopbackBroker(etcd, tmp_path_factory.mktemp("broker"))
            try:
                yield broker
            finally:
                broker.close()
                print(broker.last_words())
    except Absent as reason:
        without(reason)


def newer_version(folder: Path) -> Path:
    """What makes all processes of a host, with this folder among its imports, speak another version of the bus."""
    (folder / "sitecustomize.py").write_text("import shardmq.bus.link\n\nshardmq.bus.link.BUS_PROTOCOL += 1\n")
    return folder


@pytest.fixture(scope="module")
def story(
    find_peer: Callable[..., Path], broker: LoopbackBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """All that befell the broker: one of its hosts is left, and one is there in another version."""
    if shutil.which("javac") is None:
        pytest.skip("no Java compiler: install a JDK")

    def find_jar(name: str) -> Path:
        path = f"/usr/share/java/{name}.jar"
        return find_peer("librabbitmq-client-java and libslf4j-java", f"debian{path}", Path(path))

    programs = Programs(tmp_path_factory.mktemp("programs"), find_jar)
    programs.write(broker)
    with programs.compile_java() as compiling:
        broker.start()
        assert compiling.wait(COMPILE_SECONDS) == 0
    try:
        story = Story(broker, programs.start())
        story.all_go_on()
        story.transfer()
        story.all_go_on()
        story.kill("shard-0")
        broker.launch(story.killed[0], f"PYTHONPATH={newer_version(tmp_path_factory.mktemp('newer'))}")
        story.all_go_on()
        story.kill("coordinator")
        story.all_go_on()
        story.tell_news()
        story.end()
        yield story
    finally:
        programs.close()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_goes_on_by_its_own_recovery_and_nothing_confirmed_is_lost(story: Story, name: str) -> None:
    client = story.clients[name]
    print(client.said)
    assert client.is_well
    assert not client.lost
    assert client.consumer.news >= client.queues, "queues of its own were not declared again"


def test_a_host_of_another_version_is_left_out_says_why_and_comes_back_when_that_is_mended(
    story: Story, broker: LoopbackBroker
) -> None:
    newer, here = story.killed[0], broker.primary("shard-0")
    said = f"{newer}.shard-0 speaks bus protocol {BUS_PROTOCOL + 1}, and {here}.shard-0 {BUS_PROTOCOL}; update both"
    broker.wait_for(lambda: said in broker.said(newer), f"{newer} says: {said}")
    assert newer not in broker.group("shard-0").in_sync
    broker.kill(newer)
    broker.launch(newer)
    broker.wait_for(lambda: newer in broker.group("shard-0").in_sync, f"{newer} is in sync")
