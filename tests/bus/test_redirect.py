"""A dialer that is sent from one listener to another, as gateways are when a shard moves to another host."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.curve import CurveKeys, create_pair
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.shard import Purge, ShardEvent, ToShard
from shardmq.bus.poller import Poller, context
from shardmq.errors import StartupRefused

HEARD: Any = ShardEvent | Answer[Any]
PATIENCE_SECONDS = 60.0
UNSAFE = CurveKeys(is_insecure=True)


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


class Hosts:
    """A shard's process on each of two hosts, and a gateway that is to find it."""

    def __init__(self, addresses: list[str], first: str, keys: Path | None = None) -> None:
        def security(name: str) -> CurveKeys:
            return UNSAFE if keys is None else CurveKeys(keys, name)

        self.contexts = [context(security(name)) for name in ("a.shard-0", "b.shard-0", "a.gateway-0")]
        self.listeners: dict[str, Listener[Any]] = {
            host: Listener(made, address, "shard", f"{host}.shard-0", ToShard)
            for host, made, address in zip("ab", self.contexts, addresses, strict=False)
        }
        self.dialer: Dialer[Any] = Dialer(self.contexts[2], first, "gateway", "a.gateway-0", HEARD, "a.shard-0")
        self.events: list[Any] = []
        self.heard: dict[str, list[Any]] = {"a": [], "b": []}
        self.frozen = ""

    def go(self, host: str) -> None:
        self.dialer.redirect(self.listeners[host].address, f"{host}.shard-0")

    def turn_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        poller = Poller([self.dialer.socket, *(listener.socket for listener in self.listeners.values())])
        while not true():
            assert time.monotonic() < deadline, (self.events, self.heard)
            poller.wait(0.005)
            now = time.monotonic()
            self.events += [*self.dialer.tick(now), *self.dialer.receive()]
            for host, listener in self.listeners.items():
                if host != self.frozen:
                    self.heard[host] += [event for _, event in [*listener.tick(now), *listener.receive()]]

    def turn_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.turn_until(lambda: time.monotonic() > until)

    def say(self, number: int) -> None:
        self.dialer.post(Call(number, Purge(number)))
        assert self.dialer.flush()

    def until_heard(self, host: str, number: int) -> None:
        """Say something in each session, as it may be lost with that, until it was heard in one.

        Where libzmq has made a broken connection anew by itself, a session may look open that the listener has ended.
        """
        has_said = False

        def is_heard() -> bool:
            nonlocal has_said
            if self.dialer.is_open and not has_said:
                self.say(number)
            has_said = self.dialer.is_open
            return Call(number, Purge(number)) in self.heard[host]

        self.turn_until(is_heard)

    def close(self) -> None:
        for link in (self.dialer, *self.listeners.values()):
            link.close()
        for made in self.contexts:
            made.term()


@pytest.fixture(params=["ipc", "tcp"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("l")
    addresses = [f"ipc://{folder}/a", f"ipc://{folder}/b"]
    if request.param == "tcp":
        addresses = [free_address(), free_address()]
    hosts = Hosts(addresses, addresses[0])
    try:
        hosts.turn_until(lambda: hosts.dialer.is_open)
        yield hosts
    finally:
        hosts.close()


def test_its_session_ends_at_both_ends_and_another_begins_elsewhere(hosts: Hosts) -> None:
    descriptor = hosts.dialer.socket.fileno()
    hosts.say(1)
    hosts.turn_until(lambda: Call(1, Purge(1)) in hosts.heard["a"])
    hosts.go("b")
    assert not hosts.dialer.is_open
    hosts.turn_until(lambda: hosts.dialer.is_open)
    hosts.until_heard("b", 2)
    assert [type(event) for event in hosts.events] == [LinkOpened, LinkLost, LinkOpened]
    assert hosts.events[-1].name == "b.shard-0"
    assert Call(2, Purge(2)) not in hosts.heard["a"]
    assert hosts.dialer.socket.fileno() == descriptor


def test_what_the_one_before_says_late_is_not_heard(hosts: Hosts) -> None:
    """It was frozen, and has answers ready that are sent when it goes on."""
    (peer,) = hosts.listeners["a"].peers
    peer.post(Answer(1, 7))
    hosts.listeners["a"].flush()
    hosts.go("b")
    hosts.turn_until(lambda: hosts.dialer.is_open)
    assert not any(isinstance(event, Answer) for event in hosts.events)


def test_it_comes_back_to_one_that_was_frozen_all_the_while(hosts: Hosts) -> None:
    hosts.frozen = "a"
    hosts.go("b")
    hosts.turn_until(lambda: hosts.dialer.is_open)
    hosts.go("a")
    hosts.frozen = ""
    hosts.turn_until(lambda: hosts.dialer.is_open and len(hosts.listeners["a"].peers) == 1)
    hosts.until_heard("a", 3)
    assert hosts.events[-1].name == "a.shard-0"


def test_with_nowhere_to_go_it_calls_nobody(hosts: Hosts) -> None:
    hosts.dialer.redirect("", "shard-0")
    hosts.turn_until(lambda: any(isinstance(event, LinkLost) for event in hosts.events))
    hosts.dialer.post(Call(1, Purge(1)))  # lost, as with a shard that is away
    assert not hosts.dialer.flush()
    assert not hosts.dialer.tick(time.monotonic() + 1)
    hosts.go("a")
    hosts.turn_until(lambda: hosts.dialer.is_open)
    assert Call(1, Purge(1)) not in hosts.heard["a"]


def test_the_same_listener_again_changes_nothing(hosts: Hosts) -> None:
    hosts.dialer.redirect(hosts.dialer.address, "a.shard-0")
    assert hosts.dialer.is_open


def test_a_dialer_without_an_address_waits_for_one() -> None:
    hosts = Hosts([free_address(), free_address()], "")
    try:
        hosts.dialer.tick(time.monotonic())
        assert not hosts.dialer.receive()
        hosts.go("b")
        hosts.turn_until(lambda: hosts.dialer.is_open)
        with pytest.raises(StartupRefused, match="cannot go on at ipc"):
            hosts.dialer.redirect("ipc:///run/other", "b.shard-0")
        assert not hosts.dialer.is_open
        hosts.go("a")
        hosts.turn_until(lambda: hosts.dialer.is_open)
    finally:
        hosts.close()


def test_only_the_holder_of_the_other_hosts_key_is_talked_to(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for name in ("a.shard-0", "b.shard-0", "a.gateway-0"):
        create_pair(keys, name)
    hosts = Hosts([free_address(), free_address()], "", keys)
    try:
        hosts.go("a")
        hosts.turn_until(lambda: hosts.dialer.is_open)
        with pytest.raises(StartupRefused, match=r"the public key of c\.shard-0 cannot be read"):
            hosts.dialer.redirect(hosts.listeners["b"].address, "c.shard-0")
        assert not hosts.dialer.is_open
        hosts.go("b")
        hosts.turn_until(lambda: hosts.dialer.is_open)
        seen = len(hosts.heard["b"])
        hosts.dialer.redirect(hosts.listeners["b"].address, "a.shard-0")  # an address that belongs to another one now
        late = time.monotonic() + 0.3
        hosts.turn_until(lambda: time.monotonic() > late)
        assert not hosts.dialer.is_open
        assert all(isinstance(event, LinkLost) for event in hosts.heard["b"][seen:])
    finally:
        hosts.close()
