"""Each means of the harness does what it says, and nothing is left behind, even by a run that crashes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from shardmq.replication.etcd.errors import Unreachable
from shardmq.replication.etcd.messages import PutAnswer, RangeAnswer, put_request, range_request
from tests.hosts.hosts import Host, Hosts
from tests.hosts.members import state
from tests.hosts.network import remove_leftovers, run
from tests.replication.etcd.loop import Asker
from tests.running import without

PORT = 9
LOST_SECONDS = 0.2


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    """Hosts for all tests of this file."""
    try:
        with Hosts() as hosts:
            yield hosts
    except Absent as reason:
        without(reason)


@pytest.fixture
def hosts(network: Hosts) -> Iterator[Hosts]:
    """The same, healed afterwards."""
    yield network
    network.heal()


class Post:
    """Datagrams between hosts: a socket on each."""

    def __init__(self, hosts: Hosts, *names: str) -> None:
        self._stack = ExitStack()
        self._hosts = hosts
        self._sockets = {name: self._socket(hosts[name]) for name in names}

    def __enter__(self) -> "Post":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _socket(self, host: Host) -> socket.socket:
        with host.inside():
            sock = self._stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        sock.bind((host.address, PORT))
        return sock

    def send(self, sender: str, receiver: str, text: bytes) -> None:
        self._sockets[sender].sendto(text, (self._hosts[receiver].address, PORT))

    def receive(self, receiver: str, seconds: float = 10.0) -> bytes:
        self._sockets[receiver].settimeout(seconds)
        return self._sockets[receiver].recv(1000)

    def arrives(self, sender: str, receiver: str) -> bool:
        """Whether a datagram arrives; one that does not is waited for in vain."""
        self.send(sender, receiver, b"?")
        try:
            return self.receive(receiver, LOST_SECONDS) == b"?"
        except TimeoutError:
            return False

    def seconds(self, sender: str, receiver: str) -> float:
        """How long a datagram is on its way: the fastest of some, as the machine may be busy."""
        taken = []
        for _ in range(5):
            began = time.monotonic()
            self.send(sender, receiver, b"?")
            self.receive(receiver)
            taken.append(time.monotonic() - began)
        return min(taken)


def test_a_cut_is_between_two_hosts_both_ways(hosts: Hosts) -> None:
    with Post(hosts, "a", "b", "c") as post:
        hosts.cut("a", "b")
        assert not post.arrives("a", "b")
        assert not post.arrives("b", "a")
        assert post.arrives("a", "c")
        assert post.arrives("c", "b")
        hosts.heal()
        assert post.arrives("a", "b")


def test_a_one_way_cut_is_one_way(hosts: Hosts) -> None:
    with Post(hosts, "a", "b") as post:
        hosts.cut("a", "b", one_way=True)
        assert not post.arrives("a", "b")
        assert post.arrives("b", "a")


def test_an_isolated_host_reaches_no_etcd_and_others_do(hosts: Hosts) -> None:
    hosts.isolate("a")
    with hosts["a"].inside(), Asker(f"{hosts.etcd.url}?insecure=true") as asker:
        assert isinstance(asker.ask(range_request(b"k"), seconds=0.5), Unreachable)
    with hosts["b"].inside(), Asker(f"{hosts.etcd.url}?insecure=true") as asker:
        assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)


def test_members_of_etcd_are_hosts_of_their_own(hosts: Hosts) -> None:
    hosts.isolate("e1")  # the first that is asked
    with hosts["client"].inside(), Asker(f"{hosts.etcd.url}?insecure=true") as asker:
        assert isinstance(asker.ask(range_request(b"k")), RangeAnswer)
        hosts.isolate("e2")
        hosts.isolate("e3")  # no majority is left
        assert isinstance(asker.ask(range_request(b"k"), seconds=0.3), Unreachable)
        hosts.heal()
        asker.until(lambda: isinstance(asker.ask(put_request(b"k", b"v"), seconds=2.0), PutAnswer))


def test_a_delay_is_of_one_way_and_as_long_as_it_says(hosts: Hosts) -> None:
    with Post(hosts, "a", "b", "c") as post:
        try:
            hosts.delay("a", "b", 0.08)
        except Absent as reason:
            without(reason)
        assert 0.08 <= post.seconds("a", "b") < 0.16
        assert post.seconds("b", "a") < 0.04
        assert post.seconds("a", "c") < 0.04
        hosts.delay("a", "b", 0.02)
        assert 0.02 <= post.seconds("a", "b") < 0.08
        hosts.heal()
        assert post.seconds("a", "b") < 0.02


def test_bulk_passes_a_delay_unharmed(hosts: Hosts) -> None:
    sent = os.urandom(1 << 20)
    try:
        hosts.delay("a", "b", 0.01)
    except Absent as reason:
        without(reason)
    with ExitStack() as stack:
        with hosts["b"].inside():
            listener = stack.enter_context(socket.create_server((hosts["b"].address, PORT)))
        command = f"import socket, sys; s = socket.create_connection(('{hosts['b'].address}', {PORT})); \
            s.sendall(open('{hosts.folder}/sent', 'rb').read()); s.close()"
        (hosts.folder / "sent").write_bytes(sent)
        process = hosts["a"].spawn([sys.executable, "-c", command])
        listener.settimeout(10.0)
        connection = stack.enter_context(listener.accept()[0])
        connection.settimeout(10.0)
        with connection.makefile("rb") as file:
            assert file.read() == sent
        process.kill()


def test_a_share_of_the_datagrams_is_lost(hosts: Hosts) -> None:
    hosts.lose("a", "b", 0.3)
    with Post(hosts, "a", "b") as post:
        for number in range(300):
            post.send("a", "b", b"%d" % number)
            post.send("b", "a", b"%d" % number)
        hosts.heal()
        post.send("a", "b", b"end")
        post.send("b", "a", b"end")
        assert 150 < sum(1 for _ in iter(lambda: post.receive("b"), b"end")) < 270
        assert sum(1 for _ in iter(lambda: post.receive("a"), b"end")) == 300


ECHO = """
import os, socket, sys
end = socket.create_server((sys.argv[1], 7))
if os.fork():
    os.wait()
print("ready", flush=True)
while True:
    connection, _ = end.accept()
    connection.sendall(connection.recv(100))
"""


def test_all_processes_of_a_host_freeze_thaw_and_die_together(hosts: Hosts) -> None:
    host = hosts["c"]
    process = host.spawn([sys.executable, "-c", ECHO, host.address])
    while "ready" not in process.output.read_text():
        assert not process.has_ended
        time.sleep(0.01)

    def answer(seconds: float) -> bytes:
        with hosts["a"].inside(), socket.create_connection((host.address, 7), 10.0) as connection:
            connection.sendall(b"hello")
            connection.settimeout(seconds)
            return connection.recv(100)

    assert answer(10.0) == b"hello"
    host.freeze()
    with pytest.raises(TimeoutError):
        answer(LOST_SECONDS)
    host.thaw()
    assert answer(10.0) == b"hello"
    host.kill()
    with pytest.raises(ConnectionRefusedError):
        answer(10.0)


CRASHING = """
import os, sys, time
from tests.hosts.hosts import Hosts
with Hosts() as hosts:
    hosts["a"].spawn(["sh", "-c", "sleep 1000 & wait"])
    print("ready", flush=True)
    time.sleep(1000)
"""


def test_a_run_that_crashed_leaves_nothing_behind(hosts: Hosts) -> None:
    root = Path(__file__).parents[2]
    crashing = subprocess.Popen([sys.executable, "-c", CRASHING], cwd=root, stdout=subprocess.PIPE)
    try:
        assert crashing.stdout is not None
        assert crashing.stdout.readline() == b"ready\n"
        name = f"shardmq-{crashing.pid}-a"
        while len(pids := run("ip", "netns", "pids", name).split()) < 2:
            time.sleep(0.01)
    finally:
        crashing.send_signal(signal.SIGKILL)
        crashing.communicate()
    assert name in remove_leftovers()
    assert f"-{crashing.pid}-" not in run("ip", "netns", "list") + str(os.listdir("/dev/shm"))
    assert not [pid for pid in pids if state(int(pid)) not in "ZX"]
    with Post(hosts, "a", "b") as post:  # and those that live are let alone
        assert post.arrives("a", "b")
