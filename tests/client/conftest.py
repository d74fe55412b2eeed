"""Peers that say what a test wants a broker to say, over a real socket: for what one does only when it is broken."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.client.peers import PATIENCE_SECONDS, Conversation, Script


@pytest.fixture
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> shardmq.Channel:
    return connection.channel()


@pytest.fixture
def peer() -> Iterator[Callable[[Script], str]]:
    """`peer(script)` is the URL of a peer that plays the script with the first who connects, then hangs up."""
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []
    faults: list[BaseException] = []

    def play(listener: socket.socket, script: Script) -> None:
        try:
            accepted, _ = listener.accept()
            with accepted:
                script(Conversation(accepted))
        except BaseException as fault:  # noqa: BLE001  it is raised in the test's own thread
            faults.append(fault)

    def start(script: Script) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_SECONDS)
        listeners.append(listener)
        thread = threading.Thread(target=play, args=(listener, script))
        threads.append(thread)
        thread.start()
        return f"shardmq://127.0.0.1:{listener.getsockname()[1]}/"

    yield start
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    for listener in listeners:
        listener.close()
    if faults:
        raise faults[0]
