"""Somebody on the processes' own sockets who does not speak their language: it is ignored, and nothing dies."""

import random
from collections.abc import Iterator

import msgspec
import psutil
import pytest
import zmq

import shardmq
from shardmq.bus.link import BUS_PROTOCOL
from shardmq.bus.messages.base import Hello, Ping, Reset, Welcome
from shardmq.bus.messages.coordinator import TopologyApplied
from shardmq.bus.messages.shard import Ack, Confirmed, Publish
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch

from .saboteur import until

encode = msgspec.msgpack.encode
RUN = RecordBatch("", "k", 1, 0, 1, 1, 1, pack(None, b"x"))


def address(broker: Broker, name: str) -> str:
    """Where a process listens, from its command line."""
    words = psutil.Process(broker.pids[name]).cmdline()
    return str(words[words.index("--listen") + 1])


@pytest.fixture(scope="module")
def hello(broker: Broker) -> Hello:
    """What opens a session with any process of the broker."""
    with shardmq.connect(broker.url) as connection:
        tables = connection.status()["processes"]
    coordinator = next(table for table in tables if table["role"] == "coordinator")
    return Hello("gateway", "stranger", BUS_PROTOCOL, coordinator["broker"], coordinator["generation"])


@pytest.fixture(params=["shard-0", "coordinator"])
def stranger(broker: Broker, request: pytest.FixtureRequest) -> Iterator["zmq.Socket[bytes]"]:
    """A socket at a process that serves the same as before when the stranger has gone, and was not restarted."""
    pids = dict(broker.pids)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.linger = 1000
    socket.rcvtimeo = 10_000
    socket.connect(address(broker, request.param))
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("calm", durable=True)
        messages = channel.consume("calm")
        yield socket
        socket.close()
        context.term()
        channel.queue_declare(f"after {request.node.name}"[:200], durable=True)
        for number in range(20):
            channel.basic_publish("", "calm", b"%d" % number)
            message = next(messages)
            assert (message.body, message.redelivered) == (b"%d" % number, False)
            message.ack()
        until(lambda: connection.status()["queues"], "everybody answers")
    assert broker.pids == pids
    assert all(psutil.pid_exists(pid) for pid in pids.values())


def test_garbage_is_ignored(hello: Hello, stranger: "zmq.Socket[bytes]") -> None:
    dice = random.Random(3)
    envelope = encode((7, 0, [hello]))
    for _ in range(500):
        stranger.send(dice.randbytes(dice.randrange(200)))
        stranger.send_multipart([dice.randbytes(dice.randrange(3)) for _ in range(dice.randrange(1, 5))])
        torn = bytearray(envelope)
        torn[dice.randrange(len(torn))] = dice.randrange(256)
        stranger.send(bytes(torn))
    stranger.send(b"\xdd\xff\xff\xff\xff" * 1000)
    stranger.send(b"\x91" * 100_000)
    stranger.send(bytes(32 << 20))


def test_envelopes_of_sessions_that_are_not_open_are_reset(stranger: "zmq.Socket[bytes]") -> None:
    for number in (0, 1, 2**63, -1):
        stranger.send(encode((number, 1, [Ping()])))
        session, count, messages = msgspec.msgpack.decode(stranger.recv())
        assert (session, count) == (number, 0)
        assert "not known" in messages[0][1]


def test_what_belongs_to_the_opening_of_a_session_ends_it_when_it_comes_later(
    hello: Hello, stranger: "zmq.Socket[bytes]"
) -> None:
    for session, late in enumerate((hello, Welcome("shard", "shard-9"), Reset("because")), start=1):
        stranger.send(encode((session, 0, [hello])))
        stranger.send(encode((session, 1, [Ping(), late])))
        stranger.send(encode((session, 2, [late])))
    stranger.send(encode((9, 0, [Welcome("shard", "shard-9")])))
    stranger.send(encode((9, 0, [Reset("because")])))


def test_a_caller_that_counts_wrongly_or_talks_nonsense_is_reset_and_takes_nobody_along(
    hello: Hello, stranger: "zmq.Socket[bytes]"
) -> None:
    for session, (count, message) in enumerate(
        [
            (5, Ping()),
            (1, Confirmed(3)),
            (0, Ping()),
            (1, Publish((99_999,), RUN)),
            (1, Ack(7, [(5, 1)])),
            (1, TopologyApplied(0)),
        ],
        start=100,
    ):
        stranger.send(encode((session, 0, [hello])))
        stranger.send(encode((session, count, [message])))
        stranger.send(encode((session, 2, [Ping()])))


def test_a_crowd_of_strangers_that_open_sessions_and_vanish_is_forgotten(
    hello: Hello, broker: Broker, stranger: "zmq.Socket[bytes]"
) -> None:
    endpoint = stranger.getsockopt_string(zmq.LAST_ENDPOINT)
    context = zmq.Context()
    for number in range(100):
        with context.socket(zmq.DEALER) as socket:
            socket.linger = 1000
            socket.connect(endpoint)
            socket.send(encode((number, 0, [msgspec.structs.replace(hello, name=f"stranger-{number % 7}")])))
    context.term()
    assert broker.pids
