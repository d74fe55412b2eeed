"""Links over real sockets: sessions, order, loss made visible."""

import socket as stream
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from shardmq.bus.dialer import HELLO_SECONDS, Dialer
from shardmq.bus.link import LinkLost, LinkOpened, LinkState
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Answer, Call, Ping
from shardmq.bus.messages.columns import Publishes
from shardmq.bus.messages.shard import (
    Confirmed,
    Publish,
    Purge,
    ShardEvent,
    ToShard,
)
from shardmq.bus.transport.connection import Connection
from shardmq.bus.transport.transport import ENVELOPE_BYTES, RECEIVE_BYTES
from shardmq.bus.transport.unix_router import UnixRouter
from shardmq.bus.transport.zmtp import DEALER, ROUTER, Zmtp, header_of
from shardmq.limits import LINK_PING_SECONDS, LINK_SILENCE_SECONDS
from shardmq.message.record import pack_many
from shardmq.message.record_batch import RecordBatch
from shardmq.runtime.clock import STANDSTILL_SECONDS

HEARD: Any = ShardEvent | Answer[Any]

PATIENCE_SECONDS = 60.0


class Pair:
    """A dialer and a listener, turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.address = f"ipc://{folder}/s"
        self.listen()
        self.dialer: Dialer[Any] = Dialer(self.context, self.address, "gateway", "gateway-0", HEARD)
        self.at_dialer: list[Any] = []
        self.at_listener: list[Any] = []

    def listen(self) -> None:
        self.listener: Listener[Any] = Listener(self.context, self.address, "shard", "shard-0", ToShard)

    def turn_until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, (self.at_dialer, self.at_listener)
            self.at_dialer += self.dialer.tick(time.monotonic())
            self.at_listener += [event for _, event in self.listener.tick(time.monotonic())]
            self.dialer.socket.poll(5)
            self.at_dialer += self.dialer.receive()
            self.at_listener += [event for _, event in self.listener.receive()]

    def close(self) -> None:
        self.dialer.close()
        self.listener.close()
        self.context.term()


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("l"))
    pair.turn_until(lambda: pair.dialer.is_open)
    yield pair
    pair.close()


def publish(number: int) -> Publish:
    return Publish((number,), RecordBatch("e", "k", 1, 1, 2**64 - 1, 0, 3, pack_many([b"x"] * 3)))


def test_both_ends_hear_of_a_session_once(pair: Pair) -> None:
    pair.dialer.post(publish(1))
    pair.dialer.flush()
    pair.turn_until(lambda: len(pair.at_listener) >= 2)
    assert pair.at_dialer == [LinkOpened("shard", "shard-0")]
    assert pair.at_listener == [LinkOpened("gateway", "gateway-0"), publish(1)]


def test_what_is_posted_before_the_listener_has_answered_goes_once_it_has(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pair = Pair(tmp_path_factory.mktemp("l"))
    pair.dialer.tick(time.monotonic())  # begins to call
    pair.dialer.post(publish(1))
    assert not pair.dialer.flush()
    assert pair.dialer.has_posted
    pair.turn_until(lambda: pair.dialer.is_open)
    assert pair.dialer.flush()
    assert not pair.dialer.has_posted
    pair.turn_until(lambda: publish(1) in pair.at_listener)
    pair.close()


def test_calling_again_before_the_answer_has_come_opens_one_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    pair = Pair(tmp_path_factory.mktemp("l"))
    try:
        now = time.monotonic()
        while not pair.listener.socket.poll(10):
            now += HELLO_SECONDS
            pair.dialer.tick(now)
        pair.dialer.tick(now + 1)
        pair.dialer.tick(now + 2)
        pair.turn_until(lambda: pair.dialer.is_open)
        pair.dialer.post(publish(1))
        pair.dialer.flush()
        pair.turn_until(lambda: publish(1) in pair.at_listener)
        assert pair.at_listener == [LinkOpened("gateway", "gateway-0"), publish(1)]
    finally:
        pair.close()


def test_messages_arrive_in_order_and_whole(pair: Pair) -> None:
    for number in range(500):
        pair.dialer.post(publish(number))
        if number % 7 == 0:
            pair.dialer.flush()
    pair.dialer.flush()
    pair.turn_until(lambda: len(pair.at_listener) == 501)
    assert pair.at_listener[1:] == [publish(number) for number in range(500)]


def test_answers_come_back(pair: Pair) -> None:
    (peer,) = pair.listener.peers
    peer.post(Confirmed(7))
    pair.listener.flush()
    pair.turn_until(lambda: Confirmed(7) in pair.at_dialer)


def test_much_is_sent_in_several_envelopes(pair: Pair) -> None:
    large = Publish((1,), RecordBatch("e", "k", 1, 1, 1, 0, 1, pack_many([bytes(3 << 20)])))
    for _ in range(8):
        pair.dialer.post(large)
    pair.dialer.flush()
    pair.turn_until(lambda: len(pair.at_listener) == 9)


def test_a_listener_that_starts_again_begins_a_new_session(pair: Pair) -> None:
    pair.listener.close()
    pair.listen()
    pair.at_dialer.clear()
    pair.dialer.post(Call(1, Purge(1)))
    pair.dialer.flush()
    pair.turn_until(lambda: any(isinstance(event, LinkOpened) for event in pair.at_dialer))
    assert [type(event) for event in pair.at_dialer] == [LinkLost, LinkOpened]
    assert not any(isinstance(event, Purge) for event in pair.at_listener)


def test_a_successor_of_the_same_name_ends_the_session_of_the_one_before(pair: Pair) -> None:
    successor: Dialer[Any] = Dialer(pair.context, pair.address, "gateway", "gateway-0", HEARD)
    try:
        pair.turn_until(lambda: not successor.tick(time.monotonic()) and bool(successor.receive()))
        assert [type(event) for event in pair.at_listener] == [LinkOpened, LinkLost, LinkOpened]
    finally:
        successor.close()


def test_a_missing_envelope_ends_the_session_at_both_ends(pair: Pair) -> None:
    session = pair.dialer._session
    assert session is not None
    session.sent += 1  # as if ZeroMQ had dropped one
    pair.dialer.post(publish(1))
    pair.dialer.flush()
    pair.turn_until(lambda: len(pair.at_dialer) >= 3)
    assert [type(event) for event in pair.at_dialer] == [LinkOpened, LinkLost, LinkOpened]
    assert [type(event) for event in pair.at_listener][:2] == [LinkOpened, LinkLost]


def ticks(start: float, seconds: float) -> list[float]:
    """Moments at which a process that runs looks at its links, up to `seconds` after the start."""
    return [start + tenth / 10 for tenth in range(1, round(seconds * 10) + 1)]


def test_a_silent_peer_is_lost(pair: Pair) -> None:
    for now in ticks(time.monotonic(), LINK_SILENCE_SECONDS - 1):
        assert not pair.dialer.tick(now)
        assert not pair.listener.tick(now)
    late = ticks(now, 2)
    assert [type(event) for now in late for event in pair.dialer.tick(now)][:1] == [LinkLost]
    assert [type(event) for now in late for _, event in pair.listener.tick(now)] == [LinkLost]


def test_who_stood_still_takes_nobody_for_silent_until_it_has_listened_again(pair: Pair) -> None:
    woken = time.monotonic() + 10 * LINK_SILENCE_SECONDS
    assert not pair.dialer.tick(woken)
    assert not pair.listener.tick(woken)
    late = ticks(woken, LINK_SILENCE_SECONDS + 1)
    assert [type(event) for now in late for event in pair.dialer.tick(now)][:1] == [LinkLost]
    assert [type(event) for now in late for _, event in pair.listener.tick(now)] == [LinkLost]


def test_who_is_late_with_every_tick_notices_a_silent_peer_none_the_less(pair: Pair) -> None:
    start = time.monotonic()
    late = [start + 2 * STANDSTILL_SECONDS * number for number in range(1, round(LINK_SILENCE_SECONDS))]
    assert [type(event) for now in late for event in pair.dialer.tick(now)][:1] == [LinkLost]
    assert [type(event) for now in late for _, event in pair.listener.tick(now)] == [LinkLost]


def test_garbage_on_the_socket_harms_nobody(pair: Pair) -> None:
    stranger = pair.context.socket(zmq.DEALER)
    stranger.linger = 0
    stranger.connect(pair.address)
    for garbage in (b"", b"\xc1", b"\x93\x01\x02\x90", b"hello", msgspec.msgpack.encode((1, 1, [[99]]))):
        stranger.send(garbage)
    stranger.send_multipart([b"one", b"two", b"three"])
    pair.dialer.post(publish(1))
    pair.dialer.flush()
    try:
        pair.turn_until(lambda: publish(1) in pair.at_listener)
    finally:
        stranger.close()
    assert pair.dialer.is_open


def test_a_listener_that_is_gone_is_noticed_before_the_next_ping(pair: Pair) -> None:
    pair.dialer.post(Call(1, Purge(1)))
    pair.dialer.flush()
    pair.listener.close()
    deadline = time.monotonic() + LINK_PING_SECONDS / 2
    while not any(isinstance(event, LinkLost) for event in pair.at_dialer):
        assert time.monotonic() < deadline
        pair.dialer.socket.poll(5)
        pair.at_dialer += pair.dialer.receive()
    assert not pair.dialer.is_open
    pair.listen()
    pair.turn_until(lambda: pair.dialer.is_open)


def test_a_listener_takes_a_bounded_number_of_bytes_at_a_time(pair: Pair) -> None:
    large = pack_many([bytes(ENVELOPE_BYTES + 1)])
    for number in range(1, 9):
        pair.dialer.post(Publish((number,), RecordBatch("e", "k", 1, 1, 2**64 - 1, number, 1, large)))
    pair.dialer.flush()
    taken: list[int] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum(taken) < 8:
        assert time.monotonic() < deadline, taken
        pair.dialer.receive()
        pair.listener.socket.poll(5)
        events = [event for _, event in pair.listener.receive() if isinstance(event, Publish)]
        assert pair.listener.more or len(events) < 4
        taken.append(len(events))
    assert max(taken) <= RECEIVE_BYTES // ENVELOPE_BYTES + 1


def test_publishes_in_columns_count_for_the_size_of_an_envelope() -> None:
    record = bytes(ENVELOPE_BYTES // 2 + 1)
    state = LinkState(1, 0.0)
    state.outbox = [Publishes("", 0, 0, 0, 0, 0, [1], ["q"], [1], [record]) for _ in range(3)]
    assert len(list(state.envelopes(0.0))) == 2


def test_what_waits_for_a_peer_that_is_lost_is_dropped(pair: Pair) -> None:
    large = Publish((1,), RecordBatch("e", "k", 1, 1, 1, 0, 1, pack_many([bytes(ENVELOPE_BYTES)])))
    (peer,) = pair.listener.peers
    dealer, router = pair.dialer.socket, pair.listener.socket
    for _ in range(3):
        pair.dialer.post(large)
        peer.post(large)
    pair.dialer.flush()
    pair.listener.flush()
    assert router.is_behind(peer.caller)
    for now in ticks(time.monotonic(), LINK_SILENCE_SECONDS + 1):
        pair.dialer.tick(now)
        pair.listener.tick(now)
    assert not router.is_behind(peer.caller)
    assert not dealer.is_connected
    pair.at_dialer.clear()
    pair.turn_until(lambda: pair.dialer.is_open)
    assert pair.at_dialer == [LinkOpened("shard", "shard-0")]


def test_a_dialer_that_is_gone_is_noticed_at_once(pair: Pair) -> None:
    pair.dialer.post(publish(1))
    pair.dialer.flush()
    pair.dialer.close()
    deadline = time.monotonic() + LINK_PING_SECONDS / 2
    heard: list[Any] = []
    while len(heard) < 2:
        assert time.monotonic() < deadline
        pair.listener.socket.poll(5)
        heard += [event for _, event in pair.listener.receive()]
    assert heard[0] == publish(1)
    assert isinstance(heard[1], LinkLost)


def test_a_session_begins_without_waiting_for_a_tick_where_the_listener_answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    pair = Pair(tmp_path_factory.mktemp("l"))
    pair.dialer.tick(time.monotonic())  # connects
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not pair.dialer.is_open:
        assert time.monotonic() < deadline
        pair.listener.socket.poll(1)
        pair.listener.receive()
        pair.dialer.receive()
    pair.close()


def test_a_stranger_that_does_not_read_is_told_no_more(pair: Pair) -> None:
    with closing(stream.socket(stream.AF_UNIX)) as stranger:
        stranger.connect(pair.address.removeprefix("ipc://"))
        stranger.sendall(Zmtp(DEALER, ROUTER, b"deaf").opening)
        unknown = msgspec.msgpack.encode((1, 1, [Ping()]))
        frames = (header_of(len(unknown)) + unknown) * 1000
        stranger.setblocking(False)
        sent, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while not any(map(pair.listener.socket.is_behind, callers(pair))):
            assert time.monotonic() < deadline
            with suppress(BlockingIOError):
                sent += stranger.send(frames[sent % len(frames) :])
            pair.listener.receive()
        waits = [len(connection._waiting) for connection in callers(pair)]
        for _ in range(100):
            with suppress(BlockingIOError):
                sent += stranger.send(frames[sent % len(frames) :])
            pair.listener.receive()
        assert [len(connection._waiting) for connection in callers(pair)] == waits
    pair.dialer.post(publish(1))
    pair.dialer.flush()
    pair.turn_until(lambda: publish(1) in pair.at_listener)


def callers(pair: Pair) -> list[Connection]:
    assert isinstance(pair.listener.socket, UnixRouter)
    return list(pair.listener.socket._connections.values())


def test_a_listener_that_speaks_something_else_is_complained_about_once(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path_factory.mktemp("l") / "s"
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dialer: Dialer[Any] = Dialer(context, f"ipc://{path}", "gateway", "gateway-0", HEARD)
    with closing(stream.socket(stream.AF_UNIX)) as other, closing(dialer):
        other.bind(str(path))
        other.listen()
        for now in ticks(time.monotonic(), 1):
            dialer.tick(now)
            other.setblocking(False)
            with suppress(BlockingIOError), closing(other.accept()[0]) as caller:
                caller.sendall(b"HTTP/1.1 400 Bad Request")
                dialer.socket.poll(100)
                dialer.receive()
    context.term()
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"no link to ipc://{path}: it does not speak ZMTP"]
