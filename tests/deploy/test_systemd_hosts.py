"""`shardmq-host.service` under a real systemd, with etcd, installed and used as its README says, line by line.

Host a is the machine's. Host b runs there as well, by a copy of the unit with folders, ports and an address of its own.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from shardmq.cmd.bench.compare.rabbitmq import Absent
from tests.deploy.etcd import EtcdPackage, start_etcd
from tests.deploy.hosts import HOSTS, UNIT
from tests.deploy.machine import Machine
from tests.deploy.services import edited, install, lines, logged, refused, started_again, stopped, typed
from tests.deploy.test_units import PROGRAM, setting
from tests.docs.document import Document
from tests.running import without

README: Final = Document(HOSTS / "README.md")
A: Final = "shardmq-host"
B: Final = "shardmq-host-b"
ENV_OF_B: Final = """\
SHARDMQ_HOST_NAME=b
SHARDMQ_HOST_ADDRESS=10.0.0.2
SHARDMQ_KEYS=/etc/shardmq/keys-b
SHARDMQ_DATA_DIR=/var/lib/shardmq-b
SHARDMQ_PORT=5673
SHARDMQ_MANAGEMENT_PORT=off
"""
TWO_HOSTS: Final = {
    "@etcd-1,etcd-2,etcd-3/": "@etcd-1/",
    "SHARDMQ_HOSTS=a,b,c": "SHARDMQ_HOSTS=a,b",
    "SHARDMQ_UP_SHARDS=4": "SHARDMQ_UP_SHARDS=2",
}
TRAFFIC: Final = "/opt/shardmq/bin/python /srv/shardmq/tests/hosts/traffic.py"
URL: Final = "shardmq://app:secret@10.0.0.1:5672,10.0.0.2:5673/"


@pytest.fixture(scope="module")
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """A machine with an etcd that does not run, and with two hosts that were never started."""
    try:
        etcd = EtcdPackage.found()
        found = Machine()
    except Absent as reason:
        without(reason)
    with logged(found, request):
        etcd.install(found)
        start_etcd(found)
        install(found)
        install_a(found)
        install_b(found)
        found.type("systemctl stop etcd")
        yield found


@pytest.fixture(scope="module")
def hosts(machine: Machine) -> Machine:
    """The same machine, with both hosts up and the user of the README."""
    machine.type(f"systemctl start etcd {A} {B}")
    user, *more = lines(README, "Three machines", f"{PROGRAM} ")
    told = operated(machine, f"{user} <<< $'secret\\nsecret'", *more)
    assert [line.split()[0] for line in told.splitlines()[-3:]] == ["coordinator", "shard-0", "shard-1"]
    return machine


def install_a(machine: Machine) -> None:
    typed(machine, *lines(README, "Three machines", "shardmq keys"), "cp etcd/ca.pem .")
    typed(machine, *lines(README, "Three machines", "install"))
    edited(machine, "/etc/shardmq/hosts.env", TWO_HOSTS)


def install_b(machine: Machine) -> None:
    keys = "\n".join(line for line in lines(README, "Three machines", "install") if "/etc/shardmq/keys" in line)
    typed(machine, keys.replace("keys/a/", "keys/b/").replace("/etc/shardmq/keys", "/etc/shardmq/keys-b"))
    machine.write("/etc/shardmq/host-b.env", ENV_OF_B)
    unit = UNIT.read_text().replace("/host.env", "/host-b.env").replace("Directory=shardmq\n", "Directory=shardmq-b\n")
    machine.write(f"/etc/systemd/system/{B}.service", unit)
    machine.type("systemctl daemon-reload")


def operated(machine: Machine, *commands: str) -> str:
    """Type lines where SHARDMQ_JOIN is set, as the README says."""
    return typed(machine, *lines(README, "Three machines", "set -a"), *commands)


def waits_for(machine: Machine, what: str) -> None:
    """Wait until `systemctl status` shows what host a waits for, and that it is not ready."""

    def is_told() -> bool:
        told = machine.run("systemctl", "status", A).stdout
        return "activating (start)" in told and f"still waiting for {what}" in told

    machine.wait_for(is_told, f"host a waits for {what}")
    assert machine.run(PROGRAM, "queue", "list").returncode != 0


def whole(machine: Machine) -> None:
    """Wait until every shard is in sync on both hosts."""

    def is_whole() -> bool:
        states = operated(machine, "shardmq shard list --columns state").splitlines()
        return len(states) == 3 and {*states} == {"whole"}

    machine.wait_for(is_whole, "every shard is whole")


def shards_of_a(machine: Machine) -> set[int]:
    """Processes of shards on host a."""
    everywhere = machine.run("pgrep", "--full", "main shard --index").stdout.split()
    return {int(pid) for pid in everywhere} & machine.processes(A)


def said_by(machine: Machine, log: str) -> list[list[str]]:
    """The words of each line that tests/hosts/traffic.py has printed into a file."""
    text = machine.run("cat", log).stdout
    return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]


def numbers(machine: Machine, log: str) -> list[str]:
    """Of which messages a client has printed the numbers: confirmed ones, or those that it took."""
    return [words[0] for words in said_by(machine, log) if words[0].isdecimal()]


@contextmanager
def published(machine: Machine, log: str) -> Iterator[None]:
    """Publish with confirms while a block runs."""
    publisher = machine.type(f"{TRAFFIC} publish {URL} > {log} 2>&1 & echo $!")
    machine.wait_for(lambda: numbers(machine, log) != [], "a message is confirmed")
    yield
    so_far = numbers(machine, log)
    machine.wait_for(lambda: numbers(machine, log) != so_far, "another message is confirmed")
    machine.said("kill", publisher)
    machine.wait_for(lambda: said_by(machine, log)[-1] == ["done"], "the publisher has ended")


def keeps(machine: Machine, count: int) -> None:
    """Wait until there are so many messages."""

    def is_there() -> bool:
        return sum(map(int, machine.run(PROGRAM, "queue", "list", "--columns", "messages").stdout.split())) == count

    machine.wait_for(is_there, f"{count} messages are there")


def elections(machine: Machine) -> int:
    """How often somebody was elected to whom nobody had handed over."""
    terms = operated(machine, "shardmq shard list --columns term").split()
    handed_over = re.findall(r"the transfer to \w has ended: \w leads", machine.said("journalctl", "--no-pager"))
    return sum(map(int, terms)) - len(handed_over)


def test_a_host_waits_for_etcd_and_for_the_others_and_is_ready_when_it_serves(machine: Machine) -> None:
    typed(machine, *lines(README, "Three machines", "systemctl enable"))
    waits_for(machine, "etcds://etcd-1:2379/orders: no answer from etcd")
    machine.type("systemctl start etcd")
    waits_for(machine, "host b")

    machine.type(f"systemctl start {B}")
    machine.type(f"systemctl start {A}")
    machine.said(PROGRAM, "queue", "list")
    assert machine.said("systemctl", "is-enabled", A) == "enabled"


def test_a_host_comes_back_with_what_was_confirmed_whatever_ends_its_processes(hosts: Machine) -> None:
    with published(hosts, "/srv/first"):
        pass
    count = len(numbers(hosts, "/srv/first"))

    main, killed = hosts.pid(A), shards_of_a(hosts)
    assert len(killed) == 2
    hosts.said("kill", "-KILL", *map(str, killed))
    hosts.wait_for(lambda: len(shards_of_a(hosts) - killed) == 2, "shards are started again")
    whole(hosts)
    keeps(hosts, count)
    assert (hosts.pid(A), hosts.property(A, "NRestarts")) == (main, "0")

    hosts.said("kill", "-KILL", str(main))
    started_again(hosts, A, restarts=1)
    whole(hosts)
    keeps(hosts, count)


def test_a_host_hands_over_before_it_stops_and_publishers_go_on(hosts: Machine) -> None:
    elected = elections(hosts)
    with published(hosts, "/srv/second"):
        since = time.monotonic()
        hosts.type(f"systemctl stop {A}")
        assert time.monotonic() - since < float(setting(UNIT, "TimeoutStopSec"))
        stopped(hosts, A)
    assert "Host 'a' may stop" in hosts.said("journalctl", "--no-pager", f"--unit={A}")
    if elections(hosts) == elected:  # else a host was too slow to be heard of, as on a machine that stood still
        assert [words for words in said_by(hosts, "/srv/second") if words[0] == "again"] == []

    hosts.type(f"systemctl start {A}")
    hosts.type(f"systemctl stop {B}")
    hosts.type(f"{TRAFFIC} drain {URL} > /srv/drained")
    drained = Counter(numbers(hosts, "/srv/drained"))
    assert Counter([*numbers(hosts, "/srv/first"), *numbers(hosts, "/srv/second")]) <= drained

    hosts.type(f"systemctl stop {A}")  # the last one waits for nobody
    for unit in (A, B):
        stopped(hosts, unit)


def test_an_operator_who_knows_better_ends_the_waiting(hosts: Machine) -> None:
    hosts.type(f"systemctl start {A}")
    hosts.type(f"systemctl stop {B}")
    operated(hosts, "shardmq host hand-over b --undo")  # as if nobody had stopped it
    hosts.type(f"systemctl stop --no-block {A}")
    hosts.wait_for(lambda: "a\tstopping" in operated(hosts, "shardmq host list"), "host a is to stop")
    assert hosts.property(A, "ControlPID") != "0"
    typed(hosts, *lines(README, "Three machines", "systemctl kill"))
    hosts.wait_for(lambda: hosts.property(A, "ActiveState") == "failed", "host a has ended")
    found = [hosts.property(A, name) for name in ("Result", "ExecMainCode", "ExecMainStatus")]
    assert found == ["signal", "1", "0"]  # of what waited; the host itself has exited in order
    hosts.type(f"systemctl reset-failed {A}")


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ("SHARDMQ_JOIN=etcd://etcd-1/orders", "2"),
        ("SHARDMQ_JOIN=etcds://shardmq:secret@etcd-1/orders?cacertfile=/etc/shardmq/host.env", "78"),
        ("SHARDMQ_HOST_ADDRESS=198.51.100.1", "78"),
        ("SHARDMQ_REPLICAS=1", "78"),
    ],
)
def test_what_a_host_refuses_is_not_tried_again(hosts: Machine, wrong: str, status: str) -> None:
    hosts.type(f"systemctl stop {A}")
    refused(hosts, A, wrong, status)
