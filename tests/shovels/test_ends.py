"""Ends of shovels over real processes: with TLS, by lists of URIs, with every way to acknowledge, through lost ends."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.cmd.run.locks import hold_port
from tests.running import running

from .moving import fill, messages, put, ready, shovel, taken, until

pytestmark = pytest.mark.usefixtures("resident")

AUTHORITY = trustme.CA()
DEAD = "amqp://127.0.0.1:1/"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Certificates of the authority, the other broker and its clients, with their keys."""
    folder = tmp_path_factory.mktemp("files")
    server, client = AUTHORITY.issue_cert("localhost", "127.0.0.1"), AUTHORITY.issue_cert("client.example")
    written = {
        "ca": AUTHORITY.cert_pem,
        "server": server.cert_chain_pems[0],
        "server-key": server.private_key_pem,
        "client": client.cert_chain_pems[0],
        "client-key": client.private_key_pem,
    }
    for name, blob in written.items():
        (folder / name).write_bytes(blob.bytes())
    return {name: str(folder / name) for name in written}


@pytest.fixture(scope="module")
def tls_port() -> Iterator[int]:
    """Where the other broker listens with TLS."""
    with hold_port("127.0.0.1", 0) as port:
        yield port


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], tls_port: int) -> Iterator[Broker]:
    """A broker that wants a certificate of who comes with TLS."""
    options = ["--tls-port", str(tls_port), "--tls-cert", files["server"], "--tls-key", files["server-key"]]
    options += ["--tls-ca", files["ca"], "--tls-verify"]
    with running(Broker(tmp_path_factory.mktemp("there") / "data", shards=1, options=options)) as broker:
        yield broker


@pytest.fixture(scope="module")
def remote(there: Broker) -> Iterator[shardmq.Connection]:
    """A connection to that."""
    with shardmq.connect(there.url) as connection:
        yield connection


def plain(broker: Broker) -> str:
    return broker.url.replace("shardmq", "amqp", 1)


def test_certificates_of_both_sides_are_checked(
    connection: shardmq.Connection,
    channel: shardmq.Channel,
    remote: shardmq.Connection,
    files: dict[str, str],
    tls_port: int,
) -> None:
    fill(channel, "secret", [b"a", b"b"])
    uri = f"amqps://guest:guest@localhost:{tls_port}/"
    put(connection, "tls", "secret", "arrived", dest_uri=uri, src_delete_after=2)
    until(lambda: "certificate" in shovel(connection, "tls").get("error", ""), "nobody trusts this broker")
    known = f"{uri}?cacertfile={files['ca']}"
    put(connection, "tls", "secret", "arrived", dest_uri=known, src_delete_after=2)
    until(lambda: "certificate" in shovel(connection, "tls").get("error", ""), "it wants a certificate")
    whole = f"{known}&certfile={files['client']}&keyfile={files['client-key']}"
    put(connection, "tls", "secret", "arrived", dest_uri=whole, src_delete_after=2)
    until(lambda: not shovel(connection, "tls"), "both are there")
    assert ready(remote, "arrived") == 2
    native = whole.replace("amqps", "shardmqs", 1)
    put(connection, "back", "arrived", "returned", src_uri=native, src_delete_after=2)
    until(lambda: not shovel(connection, "back"), "both are back")
    assert [message.body for message in taken(channel, "returned")] == [b"a", b"b"]


def test_each_end_tries_the_next_of_its_uris(
    there: Broker, connection: shardmq.Connection, remote: shardmq.Connection
) -> None:
    with remote.channel() as far:
        fill(far, "listed", [b"a"])
        put(connection, "list", "listed", "found", src_uri=[DEAD, plain(there)], dest_uri=["amqp://", DEAD])
        until(lambda: ready(connection, "found") == 1, "the source's second URI, the destination's first")
        fill(far, "listed", [b"b"])
        dead_first: dict[str, Any] = {"src_uri": [plain(there), DEAD], "dest_uri": [DEAD, DEAD, "amqp://"]}
        put(connection, "list", "listed", "found", **dead_first)
        until(lambda: ready(connection, "found") == 2, "the source's first URI, the destination's third")
    connection.parameter_delete("/", "shovel", "list")


def test_only_what_is_confirmed_waits_for_a_destination_that_stands_still(
    there: Broker, connection: shardmq.Connection, channel: shardmq.Channel, remote: shardmq.Connection
) -> None:
    modes = ("on-publish", "no-ack", "on-confirm")
    for mode in modes:
        fill(channel, mode, [])
        put(connection, mode, mode, f"{mode}.far", dest_uri=plain(there), ack_mode=mode)
    for mode in modes:
        until(lambda mode=mode: shovel(connection, mode).get("state") == "running", f"{mode} runs")
    os.kill(there.pids["gateway-0"], signal.SIGSTOP)
    try:
        for mode in modes:
            fill(channel, mode, [b"%d" % number for number in range(20)])
        until(lambda: not messages(connection, "on-publish"), "they are acknowledged once they are sent")
        until(lambda: not messages(connection, "no-ack"), "they need no acknowledgement")
        assert messages(connection, "on-confirm") == 20
    finally:
        os.kill(there.pids["gateway-0"], signal.SIGCONT)
    until(lambda: not messages(connection, "on-confirm"), "they are confirmed")
    for mode in modes:
        until(lambda mode=mode: ready(remote, f"{mode}.far") == 20, f"all of {mode} are there, once")
        connection.parameter_delete("/", "shovel", mode)


def test_neither_a_lost_end_nor_a_lost_process_begins_the_count_anew(
    here: Broker, there: Broker, connection: shardmq.Connection, channel: shardmq.Channel, remote: shardmq.Connection
) -> None:
    fill(channel, "counted", [b"%d" % number for number in range(3)])
    put(connection, "six", "counted", "far", dest_uri=plain(there), src_delete_after=6)
    until(lambda: shovel(connection, "six").get("moved") == 3, "three are moved")
    os.kill(there.pids["gateway-0"], signal.SIGKILL)
    until(lambda: shovel(connection, "six").get("error"), "it has lost its end")
    assert shovel(connection, "six")["moved"] == 3
    fill(channel, "counted", [b"3", b"4"])
    until(lambda: shovel(connection, "six").get("moved") == 5, "five are moved")
    os.kill([notice.pid for notice in here.notices if notice.process == "shovels" and notice.pid][-1] or 0, 9)
    fill(channel, "counted", [b"5", b"6", b"7"])
    until(lambda: not shovel(connection, "six"), "six are moved")
    assert [message.body for message in taken(channel, "counted")] == [b"6", b"7"]
    until(lambda: ready(remote, "far") == 6, "no more than these are there")
