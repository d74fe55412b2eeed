"""TLS: with threads, with asyncio, with certificates on both sides, and with whom nobody trusts."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port

AUTHORITY = trustme.CA()


def context(certificate: bool = False) -> ssl.SSLContext:
    """Trusts the broker, and shows a certificate where it is to."""
    made = ssl.create_default_context()
    AUTHORITY.configure_trust(made)
    if certificate:
        AUTHORITY.issue_cert("client.example").configure_cert(made)
    return made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Broker]]:
    """Of a broker that wants certificates of its clients."""
    folder = tmp_path_factory.mktemp("tls")
    issued = AUTHORITY.issue_cert("localhost", "127.0.0.1")
    certificate, key, ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    ca.write_bytes(AUTHORITY.cert_pem.bytes())
    with hold_port("127.0.0.1", 0) as port:
        options = ["--tls-port", str(port), "--tls-cert", str(certificate), "--tls-key", str(key)]
        broker = Broker(Path(folder) / "data", shards=1, options=[*options, "--tls-ca", str(ca), "--tls-verify"])
        try:
            broker.start()
            yield f"shardmqs://guest:guest@localhost:{port}/", broker
        finally:
            broker.close()
            print(broker.last_words())


def test_many_threads_write_while_one_reads_and_nothing_is_lost(url: tuple[str, Broker]) -> None:
    with shardmq.connect(url[0], tls=context(certificate=True)) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        count, done = [0], threading.Event()
        size = 40_000

        def handle(message: shardmq.Message) -> None:
            assert len(message.body) == size
            message.ack()
            count[0] += 1
            if count[0] == 800:
                done.set()

        connection.channel().basic_consume(queue, handle, prefetch=50)
        with channel.publisher() as publisher, ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: publisher.publish_many("", queue, [bytes(size)] * 200), range(4)))
        assert done.wait(30)
        largest = bytes((16 << 20) - 10)
        channel.basic_publish("", queue, b"x" * size)
        other = channel.queue_declare(exclusive=True).queue
        channel.basic_publish("", other, largest)
        message = channel.basic_get(other, auto_ack=True)
        assert message is not None
        assert message.body == largest


def test_the_same_in_asyncio(url: tuple[str, Broker]) -> None:
    async def main() -> None:
        async with await shardmq.aio.connect(url[0], tls=context(certificate=True)) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            async with channel.publisher() as publisher:
                await publisher.publish_many("", queue, [bytes(100_000)] * 50)
            count = 0
            async for message in channel.consume(queue, prefetch=20, inactivity_timeout=1):
                message.ack()
                count += 1
            assert count == 50
        with pytest.raises(errors.ConnectionLost, match="no broker answers"):
            await shardmq.aio.connect(url[0])

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_broker_that_nobody_vouches_for_is_refused_with_a_hint(url: tuple[str, Broker]) -> None:
    with pytest.raises(errors.ConnectionLost, match=r"certificate is not to be trusted.*tls="):
        shardmq.connect(url[0])


def test_a_client_without_a_certificate_is_lost(url: tuple[str, Broker]) -> None:
    with pytest.raises(errors.ConnectionLost, match="may want a certificate"):
        shardmq.connect(url[0], tls=context())


def test_tls_where_there_is_none_and_none_where_there_is_are_told_apart(url: tuple[str, Broker]) -> None:
    secure, plain = url[0], url[1].url

    async def main() -> None:
        with pytest.raises(errors.ConnectionLost, match="speaks no TLS"):
            await shardmq.aio.connect(plain.replace("shardmq:", "shardmqs:"), tls=context())
        with pytest.raises(errors.ConnectionLost, match="write shardmqs://"):
            await shardmq.aio.connect(secure.replace("shardmqs:", "shardmq:"))

    with pytest.raises(errors.ConnectionLost, match="speaks no TLS"):
        shardmq.connect(plain.replace("shardmq:", "shardmqs:"), tls=context())
    with pytest.raises(errors.ConnectionLost, match="write shardmqs://"):
        shardmq.connect(secure.replace("shardmqs:", "shardmq:"))
    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_lost_connection_comes_back_with_tls(url: tuple[str, Broker]) -> None:
    address, broker = url
    with shardmq.connect(address, tls=context(certificate=True)) as connection:
        back = threading.Event()
        connection.on_recovery(lambda _: back.set())
        channel = connection.channel()
        channel.queue_declare("tls", durable=True)
        broker.kill("gateway-0")
        assert back.wait(20)
        channel.basic_publish("", "tls", b"x")
        assert channel.queue_purge("tls") == 1


def test_a_handshake_that_is_never_answered_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"shardmqs://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(errors.ConnectionLost, match="no answer in time"):
            shardmq.connect(address, timeout=0.3, tls=context())
