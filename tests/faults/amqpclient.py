"""A client that speaks AMQP frame by frame, as fast as it can, and reads when it likes."""

import socket
import struct

from shardmq.cmd.run.broker import Broker


class AmqpClient:
    """A socket that speaks AMQP as fast as it can."""

    def __init__(self, broker: Broker, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", broker.port))
        self.socket.sendall(b"AMQP\0\0\x09\x01")
        self.receive()
        login = struct.pack(">I", 12) + b"\0guest\0guest"
        self.method(0, 10, 11, struct.pack(">I", 0) + b"\x05PLAIN" + login + b"\x05en_US")
        _, self.frame_max, _ = struct.unpack(">HIH", self.receive()[4:12])
        self.method(0, 10, 31, struct.pack(">HIH", 2047, self.frame_max, 0))
        self.method(0, 10, 40, b"\x01/\0\0")
        self.receive()
        self.method(1, 20, 10, b"\0")
        self.receive()

    @staticmethod
    def frame(kind: int, channel: int, payload: bytes) -> bytes:
        return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"

    def method(self, channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> None:
        self.socket.sendall(self.frame(1, channel, struct.pack(">HH", class_id, method_id) + arguments))

    def message(self, queue: str, properties: bytes, body: bytes) -> bytes:
        key = queue.encode()
        content = self.frame(2, 1, struct.pack(">HHQ", 60, 0, len(body)) + properties)
        method = struct.pack(">HHHB", 60, 40, 0, 0) + bytes((len(key),)) + key + b"\0"
        return self.frame(1, 1, method) + content + (self.frame(3, 1, body) if body else b"")

    def declare(self, queue: str, nowait: bool) -> bytes:
        name = queue.encode()
        flags = bytes((0x10 if nowait else 0,))
        return self.frame(1, 1, struct.pack(">HHHB", 50, 10, 0, len(name)) + name + flags + struct.pack(">I", 0))

    def receive(self) -> bytes:
        """The next frame's payload."""
        head = self._exactly(7)
        return self._exactly(struct.unpack(">I", head[3:])[0] + 1)[:-1]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.socket.recv(size - len(data))
        return bytes(data)

    def close(self) -> None:
        self.socket.close()
