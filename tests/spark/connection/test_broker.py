"""The connection of Spark's processes: opened, lost and won back, and its questions answered once."""

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

import shardmq
from shardmq.client.api.url import parse
from shardmq.cmd.run.broker import Broker as Server
from shardmq.cmd.run.locks import hold_port
from shardmq.errors import (
    AuthenticationFailed,
    ConnectionLost,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    ShardmqError,
    StillPreparing,
    Unavailable,
)
from shardmq.protocol.native.operations.codec import TYPES
from shardmq.protocol.native.operations.transaction import TransactionCommit
from shardmq.spark.connection import broker as module
from shardmq.spark.connection import shared
from shardmq.spark.connection.broker import BrokerConnection
from shardmq.spark.connection.link import Link
from shardmq.spark.connection.protocol import Op
from shardmq.spark.connection.shared import connection
from shardmq.spark.jobs.transaction import asking, give_up
from shardmq.spark.write.publisher import PublishWindow
from tests.spark.proxy import Fate, Proxy

COMMIT = TYPES[TransactionCommit]


@pytest.fixture
def ours(broker: Server) -> Iterator[BrokerConnection]:
    ours = BrokerConnection(broker.url)
    yield ours
    ours.close()


def staged(ours: BrokerConnection, queue: str, name: str) -> tuple[int, list[tuple[int, int]]]:
    """A transaction with two messages to a queue, sealed."""
    number, is_committed = ours.begin(name)
    assert not is_committed
    publisher = PublishWindow(ours, number)
    publisher.publish("", queue, 1, 2, memoryview(b"\x92\xc0\xc4\x01a\x92\xc0\xc4\x01b"))
    publisher.flush()
    return number, [(publisher.attempt, ours.seal(number, publisher.attempt))]


def test_what_is_committed_appears_and_stays(ours: BrokerConnection, channel: shardmq.Channel, queue: str) -> None:
    number, attempts = staged(ours, queue, queue)
    assert channel.basic_get(queue) is None
    assert ours.commit(queue, number, attempts)
    assert ours.commit(queue, number, attempts), "asking again is answered the same"
    assert [channel.basic_get(queue, auto_ack=True).body for _ in range(2)] == [b"a", b"b"]  # type: ignore[union-attr]
    assert channel.basic_get(queue) is None
    assert ours.begin(queue) == (number, True)
    with pytest.raises(PreconditionFailed):
        ours.abort(queue, number)


def test_what_is_aborted_never_was(ours: BrokerConnection, channel: shardmq.Channel, queue: str) -> None:
    number, attempts = staged(ours, queue, queue)
    ours.abort(queue, number)
    ours.abort(queue, number)
    assert channel.basic_get(queue) is None
    with pytest.raises(PreconditionFailed):
        ours.commit(queue, number, attempts)
    again, is_committed = ours.begin(queue)
    assert (again != number, is_committed) == (True, False)
    ours.abort(queue)


def test_a_lost_answer_is_asked_for_again(broker: Server, channel: shardmq.Channel, queue: str) -> None:
    with Proxy(broker.port) as proxy:
        ours = BrokerConnection(proxy.url)
        number, attempts = staged(ours, queue, queue)
        fates = [Fate.IS_NEVER_ANSWERED, Fate.IS_LOST]
        proxy.judge = lambda kind: fates.pop() if kind == COMMIT and fates else Fate.PASSES
        assert ours.commit(queue, number, attempts)
        assert (fates, ours.life) == ([], 3)
        ours.close()
    assert channel.queue_purge(queue) == 2


def test_a_gateway_that_was_killed_is_found_again(start_broker: Callable[..., Server]) -> None:
    server = start_broker(shards=1)
    ours = BrokerConnection(server.url)
    server.kill_and_wait("gateway-0")
    number, is_committed = ours.begin("orders")
    assert (number > 0, is_committed, ours.life) == (True, False, 2)
    ours.close()


class Asked:
    """What a broker answers to commits, one after the other, each after 12 seconds of a clock that tests have."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.now = 1000.0
        self.left = list(answers)
        monkeypatch.setattr(module, "time", self)
        self.ours = object.__new__(BrokerConnection)
        self.ours.timeout = 60.0
        monkeypatch.setattr(self.ours, "ask", self.answer)

    def answer(self, _operation: Op, *_values: object) -> Any:
        self.now += 12
        answer = self.left.pop(0)
        if isinstance(answer, ShardmqError):
            raise answer
        return answer

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def reading(*bytes_read: int) -> list[StillPreparing]:
    return [StillPreparing.of(["shard-0"], "nightly", read, 100) for read in bytes_read]


def test_a_commit_waits_as_long_as_shards_get_on(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [{"visible": False}, {"visible": True}]  # there is time for that once it is decided
    asked = Asked(monkeypatch, *reading(*range(0, 100, 5)), *late)
    assert asked.ours.commit("nightly", 7, [(5, 1)])
    assert asked.now > 1000 + 20 * 12


def test_a_commit_for_which_no_shard_gets_on_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, *reading(20, *[40] * 100))
    with pytest.raises(StillPreparing, match=r"shard-0 still reads what was staged \(40 of 100 bytes so far\)"):
        asked.ours.commit("nightly", 7, [(5, 1)])
    assert 1000 + 60 < asked.now < 1000 + 2 * 60


def test_questions_wait_for_a_broker_that_is_restarted(start_broker: Callable[..., Server]) -> None:
    server = start_broker(shards=1)
    ours = BrokerConnection(server.url)
    number, _ = ours.begin("orders")
    server.stop()
    asked: list[tuple[int, bool]] = []
    asking = threading.Thread(target=lambda: asked.append(ours.begin("orders")))
    asking.start()
    server.start()
    asking.join(60)
    assert asked == [(number, False)]
    ours.close()


def test_a_question_without_an_answer_ends_in_time(start_broker: Callable[..., Server]) -> None:
    server = start_broker(shards=1)
    ours = BrokerConnection(server.url, timeout=1.0)
    server.stop()
    began = time.monotonic()
    with pytest.raises((ConnectionLost, Unavailable)):
        ours.begin("orders")
    assert time.monotonic() - began >= 0.5


def test_nobody_listening_is_told_in_time() -> None:
    with hold_port("127.0.0.1", 0) as port, pytest.raises(ConnectionLost, match=f"no broker answers at .*:{port}"):
        BrokerConnection(f"shardmq://127.0.0.1:{port}/", timeout=0.3)


def test_a_broker_that_resets_the_connection_has_closed_it() -> None:
    def reset(listener: socket.socket) -> None:
        accepted, _ = listener.accept()
        accepted.recv(1 << 16)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = threading.Thread(target=reset, args=(listener,))
        peer.start()
        address = parse(f"shardmq://127.0.0.1:{listener.getsockname()[1]}/")
        with pytest.raises(ConnectionLost, match=f"^the broker at {address} closed the connection before it was open"):
            Link(address, 10.0)
        peer.join()


def test_the_second_host_is_taken_where_the_first_is_gone(broker: Server) -> None:
    with hold_port("127.0.0.1", 0) as gone:
        ours = BrokerConnection(f"shardmq://127.0.0.1:{gone},127.0.0.1:{broker.port}/")
        assert ours.is_alive()
        ours.close()


def test_a_wrong_password_is_refused_at_once(broker: Server) -> None:
    with pytest.raises(AuthenticationFailed, match="password"):
        BrokerConnection(f"shardmq://guest:wrong@127.0.0.1:{broker.port}/")
    with pytest.raises(AuthenticationFailed, match="elsewhere"):
        BrokerConnection(f"shardmq://127.0.0.1:{broker.port}/elsewhere")
    with pytest.raises(InvalidRequest, match="shardmq://user:password@host:port/vhost"):
        BrokerConnection("http://127.0.0.1/")


def test_a_refused_question_leaves_the_connection(ours: BrokerConnection) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        ours.ask(Op.QUEUE_SLICES, "nowhere", 2, "")
    ours.begin("after")
    ours.abort("after")
    assert ours.life == 1


def test_a_process_has_one_connection_to_a_url_which_is_looked_at_before_use(broker: Server) -> None:
    with Proxy(broker.port) as proxy:
        first = connection(proxy.url)
        assert connection(proxy.url, timeout=5.0) is first
        assert (first.life, first.timeout) == (1, 5.0)
        proxy.judge = lambda _: Fate.IS_LOST
        with pytest.raises(ConnectionLost):
            first.ask(Op.TRANSACTION_BEGIN, "orders", 0, 0)
        proxy.judge = lambda _: Fate.PASSES
        assert connection(proxy.url) is first
        assert first.life == 2
        del shared._connections[os.getpid(), proxy.url, first.address]
        first.close()


def test_a_peer_that_is_no_broker_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(shardmq.errors.ProtocolError, match="no frame type"):
            BrokerConnection(f"shardmq://127.0.0.1:{listener.getsockname()[1]}/", timeout=5.0)


def test_tls_is_spoken_with_the_systems_authorities(
    start_broker: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key, trusted = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(trusted)
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), "--tls-cert", str(certificate), "--tls-key", str(key)]
        start_broker(shards=1, options=options)
        url = f"shardmqs://127.0.0.1:{port}/"
        with pytest.raises(ConnectionLost, match=r"not trusted.*SSL_CERT_FILE"):
            BrokerConnection(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        ours = BrokerConnection(url)
        ours.ask(Op.TRANSACTION_BEGIN, "orders", 0, 0)
        publisher = PublishWindow(ours)
        for _ in range(20):  # more than the socket takes at once
            publisher.publish("amq.fanout", "", 1, 1, memoryview(b"\x92\xc0\xc6\x00\x0f\x00\x00" + bytes(0x0F0000)))
        publisher.flush()
        ours.close()


def test_what_a_job_gives_up_is_not_its_successors(broker: Server) -> None:
    with asking(broker.url) as own:
        first, _ = own.begin("same name")
        own.abort("same name", first)
        second, _ = own.begin("same name")
        give_up(broker.url, "same name", first, ShardmqError("the first one failed"))
        assert own.begin("same name", number=second) == (second, False)


def test_a_connection_returns_to_its_first_gateway_when_that_is_back(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETURN_SECONDS", 0.0)
    with hold_port("127.0.0.1", 0) as port:
        url = f"shardmq://127.0.0.1:{port},127.0.0.1:{broker.port}/"
        ours = connection(url)
        assert (ours.address, ours.life) == (f"127.0.0.1:{broker.port}", 1)
        assert connection(url).life == 1, "it stays where it is"
    with Proxy(broker.port, port) as proxy:
        assert connection(url) is ours
        assert (ours.address, ours.life) == (f"127.0.0.1:{port}", 2)
        ours.begin("returned")
        ours.abort("returned")
        ours.close()
        del shared._connections[os.getpid(), url, f"127.0.0.1:{port}"]
    assert proxy.url.endswith(f":{port}/")
