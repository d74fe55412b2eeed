"""Links over TCP: only who has an allowed key talks, and only with whom it meant to."""

import logging
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth

from shardmq.bus.curve import ALLOWED, NO_KEYS, CurveKeys, create_pair, held
from shardmq.bus.dialer import Dialer
from shardmq.bus.link import LinkOpened
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.shard import Purge, ShardEvent, ToShard
from shardmq.bus.poller import context
from shardmq.errors import StartupRefused

HEARD: Any = ShardEvent | Answer[Any]

PATIENCE_SECONDS = 60.0


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


class Room:
    """Listeners and dialers of processes of their own, as far as ZeroMQ can tell; closed at the end."""

    def __init__(self) -> None:
        self._contexts: list[zmq.Context[zmq.Socket[bytes]]] = []
        self._links: list[Listener[Any] | Dialer[Any]] = []

    def listen(
        self, security: CurveKeys, address: str = "", name: str = "shard-0", role: str = "shard"
    ) -> "Listener[Any]":
        self._contexts.append(context(security))
        listener: Listener[Any] = Listener(self._contexts[-1], address or free_address(), role, name, ToShard)
        self._links.append(listener)
        return listener

    def dial(
        self,
        security: CurveKeys,
        address: str,
        peer: str = "shard-0",
        role: str = "gateway",
        name: str = "gateway-0",
    ) -> "Dialer[Any]":
        self._contexts.append(context(security))
        dialer: Dialer[Any] = Dialer(self._contexts[-1], address, role, name, HEARD, peer)
        self._links.append(dialer)
        return dialer

    def close(self) -> None:
        for link in self._links:
            link.close()
        for one in self._contexts:
            one.term()


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.close()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    for name in ("shard-0", "gateway-0"):
        create_pair(tmp_path / "keys", name)
    return tmp_path / "keys"


@pytest.fixture
def listener(room: Room, keys: Path) -> "Listener[Any]":
    return room.listen(CurveKeys(keys, "shard-0"))


def turn_until(listener: "Listener[Any]", dialer: "Dialer[Any] | None", true: Callable[[list[Any]], bool]) -> None:
    heard: list[Any] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not true(heard):
        assert time.monotonic() < deadline, heard
        now = time.monotonic()
        listener.tick(now)
        if dialer is not None:
            dialer.tick(now)
            dialer.socket.poll(5)
            heard += dialer.receive()
        heard += [event for _, event in listener.receive()]


def turned_away(listener: "Listener[Any]", dialer: "Dialer[Any] | None", log: pytest.LogCaptureFixture) -> str:
    """What the log says of a caller that got nowhere."""
    turn_until(listener, dialer, lambda _heard: "turns away" in log.text)
    assert listener.peers == []
    assert dialer is None or not dialer.is_open
    return log.text


def test_allowed_keys_talk_both_ways(room: Room, keys: Path, listener: "Listener[Any]") -> None:
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
    turn_until(listener, dialer, lambda _heard: dialer.is_open)
    dialer.post(Call(1, Purge(1)))
    dialer.flush()
    turn_until(listener, dialer, lambda heard: Call(1, Purge(1)) in heard)
    listener.peers[0].post(Answer(1, 7))
    turn_until(listener, dialer, lambda heard: Answer(1, 7) in heard)


def test_what_is_said_cannot_be_read_on_the_way(room: Room, keys: Path, listener: "Listener[Any]") -> None:
    host, port = listener.address.removeprefix("tcp://").split(":")
    with socket.create_server(("127.0.0.1", 0)) as between:
        dialer = room.dial(CurveKeys(keys, "gateway-0"), f"tcp://127.0.0.1:{between.getsockname()[1]}")
        inward, _ = between.accept()
    outward = socket.create_connection((host, int(port)))
    seen = b""
    with inward, outward:
        inward.settimeout(0.01)
        outward.settimeout(0.01)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not listener.peers:
            assert time.monotonic() < deadline
            dialer.tick(time.monotonic())
            for source, target in ((inward, outward), (outward, inward)):
                try:
                    chunk = source.recv(65_536)
                except TimeoutError:
                    continue
                seen += chunk
                target.sendall(chunk)
            listener.receive()
    assert b"CURVE" in seen
    assert b"gateway" not in seen


def test_an_unknown_key_gets_nowhere_and_is_logged(
    room: Room, listener: "Listener[Any]", tmp_path: Path, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = tmp_path / "strange"
    create_pair(strange, "gateway-0")
    shutil.copy(keys / ALLOWED / "shard-0.key", strange / ALLOWED)
    key = held(strange)[0]["public_key"]
    assert key in turned_away(listener, room.dial(CurveKeys(strange, "gateway-0"), listener.address), caplog)


def test_a_caller_that_expects_another_key_gets_nowhere(
    room: Room, keys: Path, listener: "Listener[Any]", caplog: pytest.LogCaptureFixture
) -> None:
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address, peer="gateway-0")
    assert "another key than ours" in turned_away(listener, dialer, caplog)


@pytest.mark.parametrize(
    ("key", "role", "name", "words"),
    [
        ("gateway-0", "coordinator", "coordinator", "says it is 'coordinator', and its key is allowed as 'gateway-0'"),
        ("gateway-0", "coordinator", "gateway-0", "says it is a coordinator, and the key"),
        ("gateway-0", "shard", "shard-1", "says it is 'shard-1', and its key is allowed as 'gateway-0'"),
        ("gateway-0", "shard", "gateway-0", "says it is a shard, and the key"),
        ("gateway-0", "gateway", "gateway-1", "rename .*gateway-0.key to gateway-1.key"),
        ("shard-1", "gateway", "shard-1", "is a shard's by its name"),
        ("a.shard-1", "gateway", "a.shard-1", "is a shard's by its name"),
        ("a.shard-0", "replica", "a.shard-0", "says it is a replica, and the key"),
        ("coordinator", "gateway", "coordinator", "is a coordinator's by its name"),
        ("coordinator", "gateway", "gateway-0", "says it is 'gateway-0'"),
        ("coordinator", "coordinator", "", "says it is ''"),
    ],
)
def test_a_key_speaks_for_the_process_of_its_name_alone(
    room: Room,
    keys: Path,
    listener: "Listener[Any]",
    caplog: pytest.LogCaptureFixture,
    key: str,
    role: str,
    name: str,
    words: str,
) -> None:
    if key != "gateway-0":
        create_pair(keys, key)
    liar = room.dial(CurveKeys(keys, key), listener.address, role=role, name=name)
    assert re.search(words, turned_away(listener, liar, caplog))
    turn_until(listener, liar, lambda _heard: f"no link to {listener.address}" in caplog.text)  # and it says so, too


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("coordinator", "coordinator"),
        ("edge.7", "gateway"),
        ("shard-x", "gateway"),
        ("a.coordinator", "coordinator"),
        ("b.example.com.gateway-0", "gateway"),
    ],
)
def test_names_that_fit_are_let_in(room: Room, keys: Path, listener: "Listener[Any]", key: str, role: str) -> None:
    create_pair(keys, key)
    dialer = room.dial(CurveKeys(keys, key), listener.address, role=role, name=key)
    turn_until(listener, dialer, lambda _heard: dialer.is_open)
    assert [(peer.role, peer.name) for peer in listener.peers] == [(role, key)]


@pytest.mark.parametrize(
    ("called", "key", "role"),
    [
        ("shard-0", "shard-1", "shard"),
        ("coordinator", "shard-0", "shard"),
        ("coordinator", "coordinator", "coordinator"),
    ],
)
def test_a_role_that_may_not_call_is_not_let_in_under_its_own_name_either(
    room: Room, keys: Path, caplog: pytest.LogCaptureFixture, called: str, key: str, role: str
) -> None:
    for name in {called, key} - {"shard-0"}:
        create_pair(keys, name)
    listener = room.listen(CurveKeys(keys, called), name=called, role="shard" if "-" in called else called)
    dialer = room.dial(CurveKeys(keys, key), listener.address, peer=called, role=role, name=key)
    assert f"it is {key}, and a {role} may not call a" in turned_away(listener, dialer, caplog)


def test_a_key_under_two_names_is_nobodys(
    room: Room, keys: Path, listener: "Listener[Any]", caplog: pytest.LogCaptureFixture
) -> None:
    second = keys / ALLOWED / "coordinator.key"
    shutil.copy(keys / ALLOWED / "gateway-0.key", second)
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
    assert "allowed as coordinator and gateway-0" in turned_away(listener, dialer, caplog)
    second.unlink()
    turn_until(listener, dialer, lambda _heard: dialer.is_open)


def test_who_answers_with_a_key_and_another_name_is_not_listened_to(
    room: Room, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    liar = room.listen(CurveKeys(keys, "shard-0"), name="shard-7")
    dialer = room.dial(CurveKeys(keys, "gateway-0"), liar.address)
    turn_until(liar, dialer, lambda _heard: "says it is 'shard-7', and has the key of 'shard-0'" in caplog.text)
    assert not dialer.is_open


def test_a_caller_without_encryption_gets_nowhere_and_is_logged(
    room: Room, listener: "Listener[Any]", caplog: pytest.LogCaptureFixture
) -> None:
    dialer = room.dial(CurveKeys(is_insecure=True), listener.address)
    assert "without encryption" in turned_away(listener, dialer, caplog)


def test_what_is_no_zeromq_at_all_harms_nobody(room: Room, keys: Path, listener: "Listener[Any]") -> None:
    host, port = listener.address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
        dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
        turn_until(listener, dialer, lambda _heard: dialer.is_open)


def test_a_key_may_be_added_and_taken_away_while_the_process_runs(
    room: Room, keys: Path, listener: "Listener[Any]", caplog: pytest.LogCaptureFixture
) -> None:
    public = keys / ALLOWED / "gateway-0.key"
    kept = public.read_bytes()
    public.unlink()
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
    turned_away(listener, dialer, caplog)
    public.write_bytes(kept)
    turn_until(listener, dialer, lambda heard: any(isinstance(event, LinkOpened) for event in heard))


def test_a_file_that_is_no_key_keeps_the_others_valid(room: Room, keys: Path, listener: "Listener[Any]") -> None:
    (keys / ALLOWED / "broken.key").write_text("nonsense")
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
    turn_until(listener, dialer, lambda _heard: dialer.is_open)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:5680", "tcp://*:5680", "tcp://shard.example:5680"])
@pytest.mark.parametrize("security", [NO_KEYS, CurveKeys(is_insecure=True)])
def test_tcp_without_keys_is_refused_with_what_to_do(room: Room, address: str, security: CurveKeys) -> None:
    with pytest.raises(StartupRefused, match=r"make keys .* and give --keys"):
        room.listen(security, address, "shard-0")
    with pytest.raises(StartupRefused, match=r"make keys .* and give --keys"):
        room.dial(security, address, "shard-0")


def test_loopback_without_keys_needs_to_be_asked_for(room: Room) -> None:
    with pytest.raises(StartupRefused, match="--insecure-bus"):
        room.listen(NO_KEYS, "tcp://127.0.0.1:0", "shard-0")
    plain = room.listen(CurveKeys(is_insecure=True), free_address(), "shard-0")
    dialer = room.dial(CurveKeys(is_insecure=True), plain.address)
    turn_until(plain, dialer, lambda _heard: dialer.is_open)


def test_ipv6_addresses_are_as_good(room: Room, keys: Path) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            address = f"tcp://[::1]:{server.getsockname()[1]}"
    except OSError:
        pytest.skip("no IPv6 here")
    listener = room.listen(CurveKeys(keys, "shard-0"), address, "shard-0")
    dialer = room.dial(CurveKeys(keys, "gateway-0"), listener.address)
    turn_until(listener, dialer, lambda _heard: dialer.is_open)


def test_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    public, secret = create_pair(tmp_path / "keys", "shard-0")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert zmq.auth.load_certificate(secret)[1]
    assert zmq.auth.load_certificate(public)[1] is None
    before = secret.read_bytes()
    with pytest.raises(StartupRefused, match="is there already"):
        create_pair(tmp_path / "keys", "shard-0")
    assert secret.read_bytes() == before


def test_a_secret_key_that_others_can_read_is_refused(room: Room, keys: Path) -> None:
    (keys / "shard-0.key_secret").chmod(0o640)
    with pytest.raises(StartupRefused, match="chmod 600"):
        room.listen(CurveKeys(keys, "shard-0"), free_address(), "shard-0")


def test_missing_keys_are_named_with_the_command_that_makes_them(room: Room, keys: Path) -> None:
    with pytest.raises(StartupRefused, match=r"shardmq keys create shard-9"):
        room.listen(CurveKeys(keys, "shard-9"), free_address(), "shard-9")
    with pytest.raises(StartupRefused, match=r"public key of shard-9 .* copy it to"):
        room.dial(CurveKeys(keys, "gateway-0"), free_address(), "shard-9")


def test_a_context_ends_although_somebody_is_guarded(keys: Path) -> None:
    made = context(CurveKeys(keys, "shard-0"))
    listener: Listener[Any] = Listener(made, free_address(), "shard", "shard-0", ToShard)
    listener.close()
    made.term()
    assert made.closed


def test_a_listener_that_is_closed_leaves_nothing_behind_and_the_next_ones_are_guarded(
    room: Room, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A replica's process makes one for each term that it leads, in one context."""
    made = context(CurveKeys(keys, "shard-0"))
    made.set(zmq.MAX_SOCKETS, 12)
    before = set(threading.enumerate())
    address = free_address()

    def guards() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "bus guard" and thread not in before]

    for _ in range(20):
        Listener(made, address, "shard", "shard-0", ToShard).close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(guards()) > 1:  # one answers for all
            assert time.monotonic() < deadline, guards()
            time.sleep(0.005)
    last: Listener[Any] = Listener(made, address, "shard", "shard-0", ToShard)
    dialer = room.dial(CurveKeys(keys, "gateway-0"), address)
    turn_until(last, dialer, lambda _heard: dialer.is_open)
    stranger = room.dial(CurveKeys(is_insecure=True), address)
    turn_until(last, stranger, lambda _heard: "without encryption" in caplog.text)
    last.close()
    made.term()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_secret_key_of_another_user_is_refused(room: Room, keys: Path) -> None:
    os.chown(keys / "shard-0.key_secret", 12_345, -1)
    with pytest.raises(StartupRefused, match="own it"):
        room.listen(CurveKeys(keys, "shard-0"), free_address(), "shard-0")


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
