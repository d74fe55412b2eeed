"""TLS on the clients' port: real processes, certificates made for the test."""

import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port
from shardmq.errors import StartupRefused
from shardmq.message.record import pack
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicGet, BasicPublish
from shardmq.protocol.native.operations.connection import ConnectionOpen
from shardmq.protocol.native.operations.topology import QueueDeclare, TopologyList
from shardmq.runtime.tls import TlsOptions, server_context
from tests.faults.saboteur import until
from tests.gateway.rawclient import RawClient

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


class Files:
    """A server's certificate and key, and its authority's, as files."""

    def __init__(self, folder: Path) -> None:
        issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
        self.certificate, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.ca.write_bytes(AUTHORITY.cert_pem.bytes())

    def options(self, port: int) -> list[str]:
        return ["--tls-port", str(port), "--tls-cert", str(self.certificate), "--tls-key", str(self.key)]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


@pytest.fixture
def secured(tmp_path: Path, files: Files) -> Callable[..., tuple[Broker, int]]:
    def start(*more: str) -> tuple[Broker, int]:
        return brokers(*more)

    held = hold_port("127.0.0.1", 0)
    started: list[Broker] = []

    def brokers(*more: str) -> tuple[Broker, int]:
        port = held.__enter__()
        broker = Broker(tmp_path / "broker", shards=1, options=[*files.options(port), *more])
        started.append(broker)
        return broker.start(), port

    yield start
    for broker in started:
        broker.close()
        print(broker.last_words())
    held.__exit__(None, None, None)


def test_what_goes_through_plainly_goes_through_tls(secured: Callable[..., tuple[Broker, int]]) -> None:
    broker, port = secured()
    body = bytes(3 << 20)
    with RawClient(broker, port, trusting()).open() as client, RawClient(broker).open() as plain:
        client.ask(QueueDeclare, "safe", True)
        client.send(BasicPublish(50, 1, "", "safe", 1, 1, pack(None, body)))
        assert client.receive() == BasicConfirm(1, [(50, 50)])
        assert plain.ask(BasicGet, "safe", True)["records"] == pack(None, body)
        client.send(BasicPublish(51, 1, "", "safe", 1, 1, pack(None, body)))
        assert client.receive() == BasicConfirm(1, [(51, 51)])
        assert client.ask(BasicGet, "safe", True)["records"] == pack(None, body)
        rows = client.ask(TopologyList, "connections")
        assert sorted(row["tls"] for row in rows) == [False, True]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_strangers_and_garbage_are_refused_and_nobody_else_notices(
    secured: Callable[..., tuple[Broker, int]], version: ssl.TLSVersion
) -> None:
    broker, port = secured()
    with RawClient(broker, port, trusting()).open() as bystander:
        old = trusting()
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = version
        with pytest.raises(ssl.SSLError):
            RawClient(broker, port, old)
        stranger = ssl.create_default_context()
        STRANGER.configure_trust(stranger)
        with pytest.raises(ssl.SSLCertVerificationError):
            RawClient(broker, port, stranger)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b""):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                plain.sendall(garbage)
        bystander.ask(QueueDeclare, "undisturbed", exclusive=True)


def is_refused(broker: Broker, port: int, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client hears only after its handshake that its certificate will not do."""
    try:
        with RawClient(broker, port, context) as client:
            client.send(ConnectionOpen(1, 1, "guest", "guest", "/", 0))
            return client.receive() is None
    except (ssl.SSLError, ConnectionError):
        return True


def test_a_renewed_certificate_is_shown_from_the_next_connection_on(
    secured: Callable[..., tuple[Broker, int]], files: Files, tmp_path: Path
) -> None:
    broker, port = secured()

    def shown() -> bytes | None:
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            trusting().wrap_socket(plain, server_hostname="localhost") as client,
        ):
            return client.getpeercert(binary_form=True)

    with RawClient(broker, port, trusting()).open() as client:
        before, key = shown(), files.key.read_bytes()
        Files(tmp_path)
        files.key.write_bytes(key)  # half of a renewal
        broker.kill("gateway-0", signal.SIGHUP)
        until(lambda: "are no pair" in broker.log.read_text(), "the gateway has told that it cannot be used")
        assert shown() == before
        Files(tmp_path)
        broker.kill("gateway-0", signal.SIGHUP)
        until(lambda: shown() != before, "the renewed one is shown")
        assert client.ask(TopologyList, "queues") == []


def test_a_client_without_the_wanted_certificate_is_refused(
    secured: Callable[..., tuple[Broker, int]], files: Files
) -> None:
    broker, port = secured("--tls-ca", str(files.ca), "--tls-verify")
    known = trusting()
    AUTHORITY.issue_cert("a-client").configure_cert(known)
    with RawClient(broker, port, known).open() as client:
        foreign = trusting()
        STRANGER.issue_cert("a-client").configure_cert(foreign)
        for context in (trusting(), foreign):
            assert is_refused(broker, port, context)
        client.ask(QueueDeclare, "undisturbed", exclusive=True)


def test_a_handshake_that_does_not_end_is_given_up(secured: Callable[..., tuple[Broker, int]]) -> None:
    _, port = secured()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as silent:
        began = time.monotonic()
        assert silent.recv(1) == b""
        assert 5 < time.monotonic() - began < 20


def test_files_that_are_none_are_refused_with_a_sentence(files: Files, tmp_path: Path) -> None:
    other = AUTHORITY.issue_cert("other").private_key_pem.bytes()
    (tmp_path / "other.pem").write_bytes(other)
    (tmp_path / "empty.pem").write_bytes(b"")
    for certificate, key, ca, words in (
        (tmp_path / "nowhere.pem", files.key, None, "nowhere.pem cannot be read"),
        (files.certificate, tmp_path / "nowhere.pem", None, "nowhere.pem cannot be read"),
        (files.certificate, tmp_path / "other.pem", None, "no pair"),
        (tmp_path / "empty.pem", files.key, None, "no pair"),
        (files.certificate, files.key, tmp_path / "empty.pem", "no certificates"),
    ):
        with pytest.raises(StartupRefused, match=words):
            server_context(TlsOptions(1, certificate, key, ca))
    with pytest.raises(StartupRefused, match="authorities"):
        server_context(TlsOptions(1, files.certificate, files.key, None, verify_client=True))
