"""Logging in with pika: passwords, certificates (EXTERNAL), and what its users see when that fails."""

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pika
import psutil
import pytest
import trustme
from pika.credentials import ExternalCredentials, PlainCredentials
from pika.exceptions import (
    AMQPConnectionError,
    AuthenticationError,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port
from shardmq.protocol.amqp.methods.connection import ConnectionOpen, ConnectionOpenOk
from tests.gateway.amqp.rawclient import RawClient

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, int]]:
    """A broker with TLS on a port of its own, that knows the authority; and user neil, who has no password."""
    folder = tmp_path_factory.mktemp("secured")
    issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (folder / "ca.pem").write_bytes(AUTHORITY.cert_pem.bytes())
    with hold_port("127.0.0.1", 0) as port:
        options = [f"--tls-{name}={folder / name}.pem" for name in ("cert", "key", "ca")]
        broker = Broker(folder / "data", shards=1, options=["--tls-port", str(port), *options])
        try:
            broker.start()
            with shardmq.connect(broker.url) as connection:
                connection.user_put("neil", None)
                connection.permission_put("neil", "/", ".*", ".*", ".*")
            yield broker, port
        finally:
            broker.close()
            print(broker.last_words())


def trusting(authority: trustme.CA | None = None, common_name: str | None = "neil") -> ssl.SSLContext:
    """A client's context; it shows a certificate of that authority where there is one."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if authority is not None:
        authority.issue_cert("client.example", common_name=common_name).configure_cert(context)
    return context


def over_tls(port: int, context: ssl.SSLContext, credentials: Any) -> pika.BlockingConnection:
    options = pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=credentials, ssl_options=options)
    )


def works(connection: pika.BlockingConnection) -> bool:
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.confirm_delivery()
    channel.basic_publish("", queue, bytes(300_000))
    _, _, body = channel.basic_get(queue, auto_ack=True)
    connection.close()
    return body == bytes(300_000)


def test_users_log_in_over_tls_by_password(secured: tuple[Broker, int]) -> None:
    assert works(over_tls(secured[1], trusting(), PlainCredentials("guest", "guest")))
    assert works(over_tls(secured[1], trusting(AUTHORITY), PlainCredentials("guest", "guest")))


def test_users_log_in_by_the_common_name_of_their_certificate(secured: tuple[Broker, int]) -> None:
    connection = over_tls(secured[1], trusting(AUTHORITY), ExternalCredentials())
    with shardmq.connect(secured[0].url) as native:
        assert ("neil", True) in {(row["user"], row["tls"]) for row in native.topology("connections")}
    assert works(connection)


def test_external_is_offered_to_those_with_a_certificate_alone(secured: tuple[Broker, int]) -> None:
    broker, port = secured
    for context, at, offered in (
        (None, broker.port, b"PLAIN AMQPLAIN"),
        (trusting(), port, b"PLAIN AMQPLAIN"),
        (trusting(AUTHORITY), port, b"PLAIN AMQPLAIN EXTERNAL"),
    ):
        with RawClient(at, context=context, is_open=False) as client:
            assert client.greet().mechanisms == offered
    with pytest.raises(AuthenticationError):
        over_tls(port, trusting(), ExternalCredentials())


def test_what_a_client_says_does_not_matter_where_its_certificate_does(secured: tuple[Broker, int]) -> None:
    with RawClient(secured[1], context=trusting(AUTHORITY), is_open=False) as client:
        client.greet()
        client.login(b"guest", "EXTERNAL")
        client.tune()
        client.send(0, ConnectionOpen("/"))
        client.expect(ConnectionOpenOk)
        with shardmq.connect(secured[0].url) as native:
            assert "neil" in {row["user"] for row in native.topology("connections")}


@pytest.mark.parametrize("name", ["nobody", None])
def test_certificates_of_nobody_are_refused(secured: tuple[Broker, int], name: str | None) -> None:
    with pytest.raises(ProbableAuthenticationError, match="mechanism EXTERNAL"):
        over_tls(secured[1], trusting(AUTHORITY, name), ExternalCredentials())


def test_certificates_of_strangers_are_refused(secured: tuple[Broker, int]) -> None:
    with pytest.raises((AMQPConnectionError, ssl.SSLError)):
        over_tls(secured[1], trusting(STRANGER), ExternalCredentials())


def test_pikas_users_see_why_they_were_not_let_in(secured: tuple[Broker, int]) -> None:
    port = secured[0].port

    def connect(user: str, password: str, vhost: str) -> pika.BlockingConnection:
        credentials = PlainCredentials(user, password)
        return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost, credentials=credentials))

    with pytest.raises(ProbableAuthenticationError, match="Login was refused using authentication mechanism PLAIN"):
        connect("guest", "wrong", "/")
    with pytest.raises((ProbableAccessDeniedError, ConnectionClosedByBroker), match="vhost moon not found"):
        connect("guest", "guest", "moon")


def test_guest_comes_from_this_machine_only(start_broker: Callable[..., Broker], own_address: str) -> None:
    broker = start_broker(shards=1, options=["--host", "0.0.0.0"])
    with RawClient(broker.port):
        pass
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(pika.ConnectionParameters(own_address, broker.port))


@pytest.fixture
def own_address() -> str:
    """An address of this machine that is not the loopback's."""
    for addresses in psutil.net_if_addrs().values():
        for each in addresses:
            if each.family.name == "AF_INET" and not each.address.startswith("127."):
                return str(each.address)
    pytest.skip("this machine has no other address than the loopback's")
