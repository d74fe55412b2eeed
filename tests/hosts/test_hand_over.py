"""`shardmq host hand-over` beside others that stop: what it is told by a real etcd, without the hosts."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from shardmq.cmd.hosts.register import BrokerRegister, opened
from shardmq.cmd.main import run
from shardmq.replication.etcd.values import BROKER, GROUPS, HOSTS, Broker, Group, Host
from tests.hosts.members import Etcd

TIMES = 8
"""A host that looked twice failed in every second or third try."""


def stop(register: BrokerRegister, name: str, is_stopping: bool) -> None:
    register.change(HOSTS, name, lambda host: replace(host, is_stopping=is_stopping))


@contextmanager
def wavering(url: str, name: str) -> Iterator[None]:
    """A host that begins to stop, and thinks better of it, again and again."""
    is_over = threading.Event()

    def waver() -> None:
        with opened(url) as register:
            while not is_over.is_set():
                stop(register, name, True)
                stop(register, name, False)

    thread = threading.Thread(target=waver)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_host_that_was_told_that_it_may_stop_is_not_told_otherwise(
    etcd: Etcd, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    url = f"{etcd.url}/hand-over"
    with opened(url) as register:
        register.change(BROKER, "", lambda _: Broker("the-broker", 1, 2))
        for name in ("a", "b", "c"):
            register.change(HOSTS, name, lambda _: Host("first"))
        group = Group("first", 1, "a", ("a", "c"), ("a", "c"))
        register.change(GROUPS, "coordinator", lambda _: group)
    with wavering(url, "a"):
        for _ in range(TIMES):
            assert run(["host", "hand-over", "c", "--wait", "60", "--join", url]) == 0
            assert b"may stop" in capsysbinary.readouterr().out
