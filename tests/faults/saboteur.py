"""What a saboteur needs: sockets that say what they like, and a look at what a process uses."""

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import psutil

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.codec import FROM_SERVER, decode, encode
from shardmq.protocol.native.operations.connection import ChannelOpen, ConnectionOpen, Ok
from shardmq.protocol.native.operations.fields import Operation

PATIENCE_SECONDS = 60.0


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """Ask again and again until the answer is true; returns it."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.02)
    return answer


def rss_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(psutil.Process(pid).memory_info().rss)


def open_files(pid: int) -> int:
    """File descriptors of a process."""
    return int(psutil.Process(pid).num_fds())


def census(connection: shardmq.Connection) -> tuple[int, int, int]:
    """Connections, channels and consumers of all gateways, without the one that asks and its channel."""
    gateways = [table for table in connection.status()["processes"] if table["role"] == "gateway"]
    connections, channels, consumers = (
        sum(table[noun] for table in gateways) for noun in ("connections", "channels", "consumers")
    )
    return connections - 1, channels - 1, consumers


def queue_table(connection: shardmq.Connection, queue: str) -> dict[str, Any]:
    """A queue's counts; empty while its shard is away."""
    return next((table for table in connection.status()["queues"] if table["name"] == queue), {})


class RawClient:
    """A socket with an open connection and a channel on it, that need not be read."""

    def __init__(self, broker: Broker, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE_SECONDS)
        self.socket.connect(("127.0.0.1", broker.port))
        self._reader = FrameReader()
        self._inbox: list[Operation] = []

    def open(self) -> "RawClient":
        """Say hello, and wait for the answers."""
        self.send(ConnectionOpen(1, 1, "guest", "guest", "/", 0))
        assert isinstance(self.receive(), Ok)
        self.send(ChannelOpen(2, 1))
        assert isinstance(self.receive(), Ok)
        return self

    def send(self, *operations: Operation) -> None:
        """Say something."""
        self.socket.sendall(b"".join(map(encode, operations)))

    def receive(self) -> Operation:
        """The next operation."""
        while not self._inbox:
            data = self.socket.recv(1 << 18)
            assert data, "the gateway hung up"
            self._inbox += [decode(kind, payload, FROM_SERVER) for kind, payload in self._reader.feed(data)]
        return self._inbox.pop(0)

    def reset(self) -> None:
        """Hang up without a goodbye: the other side sees RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def send_until_stuck(client: RawClient, data: bytes, bytes_max: int, patience: float = 1.5) -> int:
    """Send the same again and again until the other side reads no more; returns how many bytes it took."""
    client.socket.settimeout(patience)
    sent = 0
    try:
        while sent < bytes_max:
            sent += client.socket.send(data[sent % len(data) :])
    except TimeoutError:
        pass
    finally:
        client.socket.settimeout(PATIENCE_SECONDS)
    return sent
