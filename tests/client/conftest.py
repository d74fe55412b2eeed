"""Peers that say what a test wants a broker to say, over a real socket: for what one does only when it is broken."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from shardmq.protocol.native.operations.codec import FROM_CLIENT, decode, encode
from shardmq.protocol.native.operations.connection import (
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
    Ok,
)
from shardmq.protocol.native.operations.fields import Operation

PATIENCE_SECONDS = 10.0


@pytest.fixture
def connection(broker: Broker) -> Iterator[shardmq.Connection]:
    with shardmq.connect(broker.url) as connection:
        yield connection


@pytest.fixture
def channel(connection: shardmq.Connection) -> shardmq.Channel:
    return connection.channel()


class Conversation:
    """The accepted end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE_SECONDS)
        self._reader = FrameReader()
        self._read: list[Operation] = []

    def next(self, kind: type[Operation] | None = None) -> Any:
        """The next operation but heartbeats, which must be of that kind."""
        while not self._read:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the client hung up")
            operations = [decode(number, payload, FROM_CLIENT) for number, payload in self._reader.feed(data)]
            self._read += [operation for operation in operations if not isinstance(operation, Heartbeat)]
        operation = self._read.pop(0)
        assert kind is None or isinstance(operation, kind), operation
        return operation

    def send(self, *operations: Operation) -> None:
        """Say something."""
        self.socket.sendall(b"".join(map(encode, operations)))

    def answer(self, request: Any, result: Any = None) -> None:
        """Carry out a request."""
        self.send(Ok(request.request, request.channel, result))

    def confirm(self, publish: BasicPublish) -> None:
        """Confirm a publish."""
        self.send(BasicConfirm(publish.channel, [(publish.request, publish.request)]))

    def open(self, channels: int = 1, heartbeat: int = 60) -> None:
        """Let the client in, and open its first channels."""
        opening = self.next(ConnectionOpen)
        self.send(Ok(opening.request, 0, {"product": "peer", "heartbeat": heartbeat}))
        for _ in range(channels):
            opening = self.next(ChannelOpen)
            self.send(Ok(opening.request, opening.channel))

    def read_to_end(self) -> None:
        """Read until the client says goodbye or hangs up."""
        try:
            while not isinstance(self.next(), ConnectionClose):
                pass
        except (EOFError, ConnectionResetError):
            return


Script = Callable[[Conversation], None]


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
