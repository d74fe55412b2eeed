"""Publishes on their way: each message once, whatever dies, and refusals that say where."""

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker as Server
from shardmq.errors import AccessRefused, NotFound, PreconditionFailed, PublishRefused, Timeout, Unroutable
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.message import record as records
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations import codec as operations
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from shardmq.protocol.native.operations.codec import FROM_CLIENT, TYPES
from shardmq.protocol.native.operations.connection import ChannelOpen, ConnectionOpen, Ok
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.write import publisher as publishing
from shardmq.spark.write.publisher import MANDATORY, PERSISTENT, WINDOW_BYTES, PublishWindow
from tests.spark.proxy import Fate, Proxy

PUBLISH = TYPES[BasicPublish]
PER_BATCH = 100
BATCHES = 120


@pytest.fixture
def ours(broker: Server) -> Iterator[BrokerConnection]:
    ours = BrokerConnection(broker.url)
    yield ours
    ours.close()


def batch_of(number: int) -> memoryview:
    return memoryview(records.pack_many([b"%d" % row for row in range(number * PER_BATCH, (number + 1) * PER_BATCH)]))


def publish_one(publisher: PublishWindow, exchange: str, key: str, flags: int = PERSISTENT) -> None:
    publisher.publish(exchange, key, flags, PER_BATCH, batch_of(0))
    publisher.flush()


def publish_all(publisher: PublishWindow, queues: list[str], between: Callable[[int], None] = lambda _: None) -> None:
    """BATCHES batches of numbered messages, one queue after the other."""
    for number in range(BATCHES):
        between(number)
        publisher.publish("", queues[number % len(queues)], PERSISTENT, PER_BATCH, batch_of(number))
    publisher.flush()


def found(channel: shardmq.Channel, queues: list[str]) -> list[int]:
    """What the queues have, sorted."""
    seen = []
    for queue in queues:
        count = channel.queue_declare(queue, durable=True, passive=True).messages
        while count:
            batch = channel.queue_peek(queue, len(seen), 10_000)
            seen += [int(message.body) for message in batch]
            count -= len(batch)
    return sorted(seen)


def bodies(channel: shardmq.Channel, queue: str, count: int) -> list[int]:
    seen: list[int] = []
    for message in channel.consume(queue, auto_ack=True, prefetch=5000, inactivity_timeout=20):
        assert message is not None
        seen.append(int(message.body))
        if len(seen) == count:
            break
    return seen


@pytest.fixture
def queues(start_broker: Callable[..., Server]) -> Iterator[tuple[Server, list[str], shardmq.Channel]]:
    """A broker that may be killed, with a queue on each of its shards."""
    server = start_broker(shards=2)
    with shardmq.connect(server.url, timeout=60) as connection, connection.channel() as channel:
        names = [f"queue-{number}" for number in range(4)]
        for name in names:
            channel.queue_declare(name, durable=True)
        yield server, names, channel


@pytest.mark.parametrize("victim", ["gateway-0", "shard-0", "coordinator"])
def test_each_message_is_staged_once_whoever_is_killed(
    queues: tuple[Server, list[str], shardmq.Channel], victim: str
) -> None:
    server, names, channel = queues
    ours = BrokerConnection(server.url, timeout=60)
    number, _ = ours.begin("killed")
    publisher = PublishWindow(ours, number)

    def kill(batch: int) -> None:
        if batch in (BATCHES // 4, BATCHES // 2):
            server.kill_and_wait(victim)

    publish_all(publisher, names, kill)
    assert ours.seal(number, publisher.attempt) == BATCHES * PER_BATCH
    assert ours.commit("killed", number, [(publisher.attempt, BATCHES * PER_BATCH)])
    seen = [row for name in names for row in bodies(channel, name, BATCHES * PER_BATCH // len(names))]
    assert sorted(seen) == list(range(BATCHES * PER_BATCH))
    assert [channel.basic_get(name) for name in names] == [None] * len(names)
    ours.close()


def test_what_a_lost_connection_had_is_published_once_without_a_transaction(
    broker: Server, channel: shardmq.Channel, queue: str
) -> None:
    with Proxy(broker.port) as proxy:
        ours = BrokerConnection(proxy.url)
        publisher = PublishWindow(ours)
        seen = [0]

        def judge(kind: int) -> Fate:
            seen[0] += kind == PUBLISH
            lossy = {40: Fate.IS_LOST, 90: Fate.IS_NEVER_ANSWERED}
            return lossy.get(seen[0], Fate.PASSES) if kind == PUBLISH else Fate.PASSES

        proxy.judge = judge
        publish_all(publisher, [queue])
        assert ours.life == 3
        ours.close()
    assert bodies(channel, queue, BATCHES * PER_BATCH) == list(range(BATCHES * PER_BATCH))
    assert channel.basic_get(queue) is None


def test_connections_that_are_lost_one_after_the_other_are_given_up(broker: Server, queue: str) -> None:
    with Proxy(broker.port) as proxy:
        ours = BrokerConnection(proxy.url)
        publisher = PublishWindow(ours, timeout=0.3)
        proxy.judge = lambda kind: Fate.IS_LOST if kind == PUBLISH else Fate.PASSES
        publisher.publish("", queue, PERSISTENT, PER_BATCH, batch_of(0))
        with pytest.raises(Timeout, match=f"confirmed nothing for 0 s .* with routing key '{queue}'"):
            publisher.flush()
        assert ours.life > 2
        ours.close()


def test_the_window_bounds_what_is_unconfirmed(ours: BrokerConnection, channel: shardmq.Channel, queue: str) -> None:
    publisher = PublishWindow(ours)
    size = 1 << 20
    batch = memoryview(b"\x92\xc0\xc6" + size.to_bytes(4, "big") + bytes(size))
    for _ in range(40):
        publisher.publish("", queue, PERSISTENT, 1, batch)
        assert publisher._bytes <= WINDOW_BYTES
    publisher.flush()
    assert publisher._bytes == 0
    assert channel.queue_purge(queue) == 40


def test_a_mandatory_message_that_no_queue_takes_names_exchange_and_key(ours: BrokerConnection) -> None:
    publisher = PublishWindow(ours)
    with pytest.raises(Unroutable, match=r"no queue takes 100 rows .* exchange 'amq.topic' with routing key 'lost'"):
        publish_one(publisher, "amq.topic", "lost", PERSISTENT | MANDATORY)


def test_a_missing_exchange_is_named(ours: BrokerConnection) -> None:
    publisher = PublishWindow(ours)
    with pytest.raises(NotFound, match="a publish to exchange 'nowhere' with routing key 'x' was refused"):
        publish_one(publisher, "nowhere", "x")


def test_a_transaction_that_is_over_takes_nothing(ours: BrokerConnection, queue: str) -> None:
    number, _ = ours.begin("over")
    ours.abort("over", number)
    publisher = PublishWindow(ours, number)
    with pytest.raises(PreconditionFailed, match=f"the default exchange with routing key '{queue}'.*over or unknown"):
        publish_one(publisher, "", queue)


def test_another_users_transaction_is_refused(
    ours: BrokerConnection, broker: Server, connection: shardmq.Connection, queue: str
) -> None:
    connection.user_put("somebody", "else")
    connection.permission_put("somebody", "/", ".*", ".*", ".*")
    number, _ = ours.begin("mine")
    theirs = BrokerConnection(broker.url.replace("guest:guest", "somebody:else"))
    publisher = PublishWindow(theirs, number)
    with pytest.raises(AccessRefused):
        publish_one(publisher, "", queue)
    ours.abort("mine")
    theirs.close()


def test_what_is_refused_for_now_is_tried_until_the_timeout(
    ours: BrokerConnection, connection: shardmq.Connection
) -> None:
    with connection.channel() as channel:
        channel.queue_declare(
            "small", durable=True, arguments={"x-max-length": PER_BATCH, "x-overflow": "reject-publish"}
        )
        channel.publisher()
        publisher = PublishWindow(ours, timeout=0.5)
        publish_one(publisher, "", "small")
        publisher.publish("", "small", PERSISTENT, PER_BATCH, batch_of(1))
        with pytest.raises(PublishRefused, match=r"routing key 'small' was refused: .*for 0 s, option timeoutMs"):
            publisher.flush()
        patient = PublishWindow(ours, timeout=60)
        patient.publish("", "small", PERSISTENT, PER_BATCH, batch_of(2))
        for _ in range(20):
            patient._turn(0.05)
        assert channel.queue_purge("small") == PER_BATCH
        patient.flush()
        assert bodies(channel, "small", PER_BATCH) == list(range(2 * PER_BATCH, 3 * PER_BATCH))
        channel.queue_delete("small")


def test_a_broker_that_is_blocked_is_waited_for_and_that_is_said_once(
    start_broker: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_broker(shards=1, options=["--disk-free-limit", "1000TB"])
    with shardmq.connect(server.url) as connection, connection.channel() as channel:
        channel.queue_declare("full", durable=True)
    ours = BrokerConnection(server.url, timeout=60)
    publisher = PublishWindow(ours, timeout=60)
    with caplog.at_level(logging.WARNING, "shardmq.spark"):
        publisher.publish("", "full", PERSISTENT, PER_BATCH, batch_of(0))
        while not ours.blocked:
            publisher._turn(1.0)
        publisher._timeout = 0.1
        for _ in range(4):
            publisher._turn(0.1)  # longer than its timeout, and it waits
    assert ["takes no publishes for now" in record.getMessage() for record in caplog.records] == [True]
    publisher._timeout = 60
    server.stop()
    server.options = ()
    server.start()
    publisher.flush()
    with shardmq.connect(server.url) as connection, connection.channel() as channel:
        assert bodies(channel, "full", PER_BATCH) == list(range(PER_BATCH))
    ours.close()


def test_the_time_a_program_takes_itself_is_none_that_the_broker_took(
    ours: BrokerConnection, channel: shardmq.Channel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = PublishWindow(ours, timeout=30)
    publisher.publish("", queue, PERSISTENT, PER_BATCH, batch_of(0))
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600)  # the SDK's threads keep their time
    monkeypatch.setattr(publishing, "time", later)
    publisher.publish("", queue, PERSISTENT, PER_BATCH, batch_of(1))
    publisher.flush()
    assert channel.queue_purge(queue) == 2 * PER_BATCH


def test_attempts_are_of_those_that_send_again_in_the_same_frames(ours: BrokerConnection) -> None:
    attempts = {PublishWindow(ours).attempt for _ in range(50)}
    assert len(attempts) == 50
    assert all(FRAMED_PRODUCERS <= attempt < 2**63 for attempt in attempts)


def test_a_peer_that_writes_before_it_reads_is_no_deadlock() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_flood, args=(listener,), daemon=True).start()
        ours = BrokerConnection(f"shardmq://127.0.0.1:{listener.getsockname()[1]}/", timeout=30)
        publisher = PublishWindow(ours)
        body = secrets.token_bytes(6 << 20)  # more than the buffers of both ends
        batch = memoryview(b"\x92\xc0\xc6" + len(body).to_bytes(4, "big") + body)
        publisher.publish("", "work", PERSISTENT, 1, batch)
        publisher.flush()
        ours.close()


def _flood(listener: socket.socket) -> None:
    """Lets a client in; then writes 16 MB of confirms of nothing, reads on only then, and confirms what it reads."""
    peer, _ = listener.accept()
    frames = FrameReader()
    noise = operations.encode(BasicConfirm(1, [(2**60, 2**60 + 9)])) * 1000
    has_flooded = False
    with peer:
        while data := peer.recv(1 << 16):
            if has_flooded is False and len(data) == 1 << 16:
                has_flooded = True
                for _ in range((16 << 20) // len(noise)):
                    peer.sendall(noise)
            for kind, payload in frames.feed(data):
                said = operations.decode(kind, payload, FROM_CLIENT)
                if isinstance(said, ConnectionOpen):
                    peer.sendall(operations.encode(Ok(said.request, 0, {})))
                elif isinstance(said, ChannelOpen):
                    peer.sendall(operations.encode(Ok(said.request, 1)))
                elif isinstance(said, BasicPublish):
                    peer.sendall(operations.encode(BasicConfirm(1, [(said.request, said.request)])))
