"""A follower in a process of its own: a store behind a socket, which answers when what it is told is on disk.

    frame   length u32 | what u8 | rest

    HELLO                            answered with the note, and what records above a released index touched
    PROMISE  term u64
    RECORD   released u64, record
    TAIL     tail
    JOIN     msgpack [note, touched]
    RANGE    range

Every frame is answered with one of the same kind, which has the index of the last record.
"""

import contextlib
import socket
import sys
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec

from shardmq.coordinator.storage.schema import LAYOUT as REGISTRY
from shardmq.replication.core.messages import Touched
from shardmq.replication.core.note import Note
from shardmq.replication.store.follower import FollowerStore
from shardmq.shards.storage.schema import LAYOUT

HELLO, PROMISE, RECORD, TAIL, JOIN, RANGE = range(6)
FRAME = Struct(">IB")
NUMBER = Struct(">Q")

Held = tuple[Note, list[Touched]]

encode = msgspec.msgpack.Encoder().encode
decode_held = msgspec.msgpack.Decoder(Held).decode


def send(link: socket.socket, what: int, *parts: Any) -> None:
    link.sendall(b"".join((FRAME.pack(sum(map(len, parts)), what), *parts)))


def receive(link: socket.socket) -> tuple[int, bytes]:
    """A frame.

    Raises:
        ConnectionError: the other end is gone.
    """
    length, what = FRAME.unpack(_exactly(link, FRAME.size))
    return what, _exactly(link, length)


def _exactly(link: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        part = link.recv(count - len(found))
        if not part:
            raise ConnectionError("the other end is gone")
        found += part
    return bytes(found)


def serve(store: FollowerStore, link: socket.socket) -> None:
    """Do what one primary says, until it is gone."""
    while True:
        what, data = receive(link)
        answer = NUMBER.pack(store.note.index)
        if what == HELLO:
            answer = encode((store.note, store.replica.touched.above(store.note.released)))
        elif what == PROMISE:
            store.promise(NUMBER.unpack(data)[0])
        elif what == RECORD:
            store.release(NUMBER.unpack_from(data)[0])
            answer = NUMBER.pack(store.apply([store.opened(memoryview(data)[NUMBER.size :])]))
        elif what == TAIL:
            store.rejoin(data)
        elif what == JOIN:
            store.begin_join(*decode_held(data))
        elif what == RANGE:
            store.put_range(data)
        send(link, what, answer)
        store.rest(0.0 if what != RECORD else float("inf") if store.note.index % 50 == 0 else 0.0)


def main(folder: Path, address: str) -> None:
    """Follow whoever calls, one after the other."""
    store = FollowerStore.open(folder, REGISTRY if folder.name == "coordinator" else LAYOUT)
    Path(address).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        print("ready", flush=True)
        while True:
            link, _ = listener.accept()
            with link, contextlib.suppress(ConnectionError):
                serve(store, link)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
