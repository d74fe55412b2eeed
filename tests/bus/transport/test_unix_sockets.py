"""Dealer and router over Unix domain sockets: with each other, with libzmq, with strangers, and when an end is gone."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq

from shardmq.bus.transport import unix_router
from shardmq.bus.transport.connection import SEND_BUFFER_BYTES
from shardmq.bus.transport.transport import NO_ENVELOPE, RECEIVE_BYTES, Envelope
from shardmq.bus.transport.unix_dealer import HANDSHAKE_SECONDS, UnixDealer
from shardmq.bus.transport.unix_router import UnixRouter
from shardmq.bus.transport.zmtp import GREETING
from shardmq.errors import StartupRefused

PATIENCE_SECONDS = 60.0
MORE_THAN_FITS = 3 * SEND_BUFFER_BYTES


class Room:
    """A router and whoever calls it, turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "s")
        self.address = f"ipc://{self.path}"
        self.router = UnixRouter(self.address)
        self.dealers: list[UnixDealer] = []
        self.heard: list[tuple[Any, Envelope | None]] = []
        self.answers: list[Envelope] = []

    def dial(self) -> UnixDealer:
        """A dealer that is connected."""
        dealer = UnixDealer(self.address, b"gateway-0:%d" % len(self.dealers))
        self.dealers.append(dealer)
        dealer.redial(time.monotonic())
        self.until(lambda: dealer.is_connected)
        return dealer

    def turn(self) -> None:
        self.router.poll(1)
        self.heard += [(caller, envelope) for caller, _, envelope in self.router.receive()]
        for dealer in self.dealers:
            self.answers += dealer.receive()

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, (self.heard[:5], self.answers[:5])
            self.turn()

    @property
    def envelopes(self) -> list[bytes | None]:
        return [None if envelope is None else bytes(envelope) for _, envelope in self.heard]

    def close(self) -> None:
        for dealer in self.dealers:
            dealer.close(0)
        self.router.close(0)


@pytest.fixture
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    room = Room(tmp_path_factory.mktemp("u"))
    yield room
    room.close()


@pytest.fixture
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield context
    context.destroy(linger=0)


def test_a_dealer_of_libzmq_talks_with_the_router(room: Room, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    stranger = context.socket(zmq.DEALER)
    stranger.setsockopt(zmq.HEARTBEAT_IVL, 20)
    stranger.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
    stranger.connect(room.address)
    sent = [b"", b"x" * 255, b"y" * 256, bytes(1 << 20)]
    for envelope in sent:
        stranger.send(envelope)
    stranger.send_multipart([b"one", b"two"])
    room.until(lambda: len(room.heard) == 5)
    assert room.envelopes == [*sent, NO_ENVELOPE]
    caller = room.heard[0][0]
    for envelope in sent:
        assert room.router.send(caller, envelope)
    got: list[bytes] = []
    while len(got) < len(sent):
        room.turn()  # pings are answered meanwhile
        if stranger.poll(20):
            got.append(stranger.recv())
    assert got == sent
    stranger.close(linger=0)
    room.until(lambda: room.envelopes[-1] is None)
    assert not room.router.send(caller, b"late")


def test_the_dealer_talks_with_a_router_of_libzmq_and_calls_the_next_one(
    room: Room, context: "zmq.Context[zmq.Socket[bytes]]"
) -> None:
    room.router.close()
    dealer = UnixDealer(room.address, b"gateway-0:7")
    room.dealers.append(dealer)
    dealer.redial(time.monotonic())
    assert not dealer.send(b"to nobody")
    for _ in range(2):
        with context.socket(zmq.ROUTER) as router:
            router.setsockopt(zmq.HEARTBEAT_IVL, 20)
            router.bind(room.address)
            while not dealer.is_connected:
                dealer.redial(time.monotonic())
                dealer.poll(20)
                dealer.receive()
            assert dealer.took_up()
            assert dealer.send(b"small")
            assert dealer.send(bytes(1 << 20))
            for size in (5, 1 << 20):
                identity, envelope = router.recv_multipart()
                assert (identity, len(envelope)) == (b"gateway-0:7", size)
            router.send_multipart([identity, bytes(1 << 20)])
            answers: list[Envelope] = []
            while not answers:
                dealer.poll(20)
                answers += dealer.receive()
            assert answers == [bytes(1 << 20)]
        while dealer.is_connected:
            dealer.poll(20)
            dealer.receive()
        assert not dealer.send(b"to nobody")


def test_what_the_socket_does_not_take_at_once_comes_whole_and_in_order(room: Room) -> None:
    dealer = room.dial()
    sent = [bytes([number]) * size for number, size in enumerate([10, MORE_THAN_FITS, 300, 40_000, 7, MORE_THAN_FITS])]
    for envelope in sent:
        assert dealer.send(envelope)
    room.until(lambda: len(room.heard) == len(sent))
    assert room.envelopes == sent
    caller = room.heard[0][0]
    for envelope in sent:
        assert room.router.send(caller, envelope)
    assert room.router.is_behind(caller)
    room.until(lambda: len(room.answers) == len(sent))
    assert list(map(bytes, room.answers)) == sent
    assert not room.router.is_behind(caller)


def test_callers_are_heard_in_turns_and_a_bounded_number_of_bytes_at_a_time(room: Room) -> None:
    loud, quiet = room.dial(), room.dial()
    for _ in range(500):
        loud.send(b"loud")
    quiet.send(b"quiet")
    room.turn()
    assert b"quiet" in room.envelopes[:2]
    assert room.router.more
    room.until(lambda: len(room.heard) == 501)
    for _ in range(8):
        loud.send(bytes(RECEIVE_BYTES // 4 + 1))
    room.heard.clear()
    while len(room.heard) < 8:
        before = len(room.heard)
        room.turn()
        assert sum(len(envelope or b"") for _, envelope in room.heard[before:]) <= RECEIVE_BYTES * 5 // 4 + 1


def test_who_hangs_up_is_heard_to_the_end(room: Room) -> None:
    dealer = room.dial()
    for number in range(100):
        dealer.send(b"%d" % number)
    dealer.close()
    room.until(lambda: len(room.heard) == 101)
    assert room.envelopes == [*(b"%d" % number for number in range(100)), None]


def test_what_is_on_its_way_arrives_where_the_other_end_closes_while_it_is_written_to(room: Room) -> None:
    dealer = room.dial()
    dealer.send(b"hello")
    room.until(lambda: len(room.heard) == 1)
    room.router.send(room.heard[0][0], b"goodbye")
    room.router.close()
    assert dealer.send(b"unheard")
    assert dealer.receive() == [b"goodbye"]
    dealer.receive()
    assert not dealer.is_connected


def test_closing_waits_for_a_peer_that_reads(room: Room) -> None:
    script = f"""
import sys, time
from shardmq.bus.transport.unix_dealer import UnixDealer
dealer = UnixDealer({room.address!r}, b"other")
dealer.redial(time.monotonic())
while not dealer.is_connected:
    dealer.poll(100); dealer.receive()
dealer.send(b"ready")
while dealer.is_connected:
    dealer.poll(100)
    for envelope in dealer.receive():
        print(len(envelope))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        room.until(lambda: len(room.heard) == 1)
        room.router.send(room.heard[0][0], bytes(MORE_THAN_FITS))
        room.router.close()
        said, _ = other.communicate(timeout=PATIENCE_SECONDS)
    assert said == f"{MORE_THAN_FITS}\n"


def test_closing_waits_no_longer_than_told_for_a_peer_that_does_not_read(room: Room) -> None:
    dealer = room.dial()
    dealer.send(bytes(MORE_THAN_FITS))
    began = time.monotonic()
    dealer.close(0.05)
    assert time.monotonic() - began < 1.0


def test_strangers_that_speak_something_else_are_hung_up_on(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    dealer = room.dial()
    strangers = []
    for garbage in (b"AMQP\0\0\x09\x01", GREETING + b"\0\x01x", bytes(300)):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(room.path)
        stranger.sendall(garbage)
        strangers.append(stranger)
    for stranger in strangers:
        stranger.setblocking(False)
        room.until(lambda stranger=stranger: is_at_its_end(stranger))  # type: ignore[misc]
        stranger.close()
    assert sorted(record.getMessage().partition("caller: ")[2] for record in caplog.records) == [
        "it does not speak ZMTP",
        "it does not speak ZMTP",
        "it sent a message before it said who it is",
    ]
    dealer.send(b"as before")
    room.until(lambda: b"as before" in room.envelopes)


def is_at_its_end(stranger: socket.socket) -> bool:
    try:
        while stranger.recv(1000):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_who_connects_and_says_nothing_is_hung_up_on_in_the_end(room: Room) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect(room.path)
        silent.setblocking(False)
        room.turn()
        room.router.tick(time.monotonic() + HANDSHAKE_SECONDS - 1)
        assert not is_at_its_end(silent)
        room.router.tick(time.monotonic() + HANDSHAKE_SECONDS + 1)
        assert is_at_its_end(silent)


def test_a_dealer_calls_a_listener_anew_that_does_not_answer(room: Room) -> None:
    dealer = UnixDealer(room.address, b"gateway-0:1")
    room.dealers.append(dealer)
    now = time.monotonic()
    dealer.redial(now)
    first = dealer._connection
    dealer.redial(now + HANDSHAKE_SECONDS - 1)
    assert dealer._connection is first
    dealer.redial(now + HANDSHAKE_SECONDS + 1)
    assert dealer._connection is not first
    room.until(lambda: dealer.is_connected)


def test_callers_beyond_the_limit_wait_until_others_have_gone(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_router, "CONNECTIONS_MAX", 2)
    first, _ = room.dial(), room.dial()
    third = UnixDealer(room.address, b"gateway-0:3")
    room.dealers.append(third)
    third.redial(time.monotonic())
    for _ in range(3):
        room.turn()
    assert not third.is_connected
    first.close()
    room.until(lambda: None in room.envelopes)
    room.router.tick(time.monotonic())
    room.until(lambda: third.is_connected)


def test_the_socket_that_a_killed_process_left_is_replaced(room: Room) -> None:
    room.router.close()
    assert not os.path.exists(room.path)
    with closing(socket.socket(socket.AF_UNIX)) as killed:
        killed.bind(room.path)
        killed.listen()
    assert os.path.exists(room.path)
    room.router = UnixRouter(room.address)
    dealer = room.dial()
    dealer.send(b"x")
    room.until(lambda: room.envelopes == [b"x"])


def test_an_address_at_which_another_process_listens_is_refused(room: Room) -> None:
    with pytest.raises(StartupRefused, match="another process listens"):
        UnixRouter(room.address)
    room.dial()


def test_a_path_that_is_too_long_is_refused(room: Room) -> None:
    with pytest.raises(StartupRefused, match="too long; choose another address"):
        UnixRouter(room.address + "x" * 100)


def test_a_closed_router_leaves_the_socket_of_its_successor(room: Room) -> None:
    os.unlink(room.path)
    successor = UnixRouter(room.address)
    room.router.close()
    room.router = successor
    room.dial()
