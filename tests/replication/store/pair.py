"""A primary of two, for the processes of a broker: a commit returns when its follower has it, too.

What a real primary does while more goes on, this one waits for; it is enough for stores to be compared.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from shardmq.replication.core.note import BEGINNING, Key, Note
from shardmq.replication.store.key_range import read_range
from shardmq.replication.store.record import Record
from shardmq.replication.store.record_ring import RecordRing
from shardmq.replication.store.replicated_engine import ReplicatedEngine
from shardmq.replication.store.tail import tail_of
from shardmq.storage.engine import Edit, Engine

from .following import HELLO, JOIN, NUMBER, PROMISE, RANGE, RECORD, TAIL, decode_held, encode, receive, send

FOLDER = "REPLICA_FOLDER"
"""Where terms are counted, and sockets are."""


def common_point(one: Note, other: Note) -> int:
    """The last index of the last term that two replicas have both records of."""
    ends = []
    for note in (one, other):
        lasts = [first - 1 for _, first in note.history[1:]] + [note.index]
        ends.append({term: last for (term, _), last in zip(note.history, lasts, strict=False)})
    shared = ends[0].keys() & ends[1].keys()
    return min(ends[0][max(shared)], ends[1][max(shared)]) if shared else 0


WAITS = "waits for its follower"

WINDOW_SECONDS = 0.003
"""Now and then the follower is ahead for so long: whoever is killed then leaves two stores that differ."""


class PairedEngine(ReplicatedEngine):
    """The engine of a primary that has one follower."""

    def __init__(self, engine: Engine) -> None:
        folder, name = Path(os.environ[FOLDER]), engine.file.parent.name
        counter = folder / f"{name}.term"
        term = int(counter.read_text()) + 1 if counter.exists() else 1
        counter.write_text(str(term))
        super().__init__(engine, term, self._post, adopt_as="1")
        self._address = str(folder / f"{name}.sock")
        self._log = folder / f"{name}.log"
        self._ring = RecordRing()
        self._link: socket.socket | None = None
        self._is_waiting = False

    def start(self, applied: int | None, check: Callable[[], object]) -> None:
        super().start(applied, check)
        self._settle()

    def apply(self, edits: Iterable[Edit], size: int | None = None, touched: int = 0) -> None:
        super().apply(edits, size, touched)
        self._settle()

    def _post(self, record: Record) -> None:
        """On its way before it is on this disk."""
        self._ring.add(record)
        if self._link is not None:
            try:
                send(self._link, RECORD, NUMBER.pack(self.replica.note.released), record.data)
            except OSError:
                self._link = None
            if record.index % 5 == 0:
                time.sleep(WINDOW_SECONDS)

    def _settle(self) -> None:
        """Until the follower has all that is here."""
        deadline = time.monotonic() + 60
        while self.replica.note.released < self.index or self._link is None:
            assert time.monotonic() < deadline, f"no follower at {self._address}"
            try:
                if self._link is None:
                    self._link = self._connected()
                else:
                    receive(self._link)
                self.replica.release(self.index)
            except OSError:
                if self._link is not None or not self._is_waiting:
                    self._note(WAITS)
                self._link, self._is_waiting = None, True
                time.sleep(0.01)
        self._is_waiting = False

    def _note(self, text: str) -> None:
        with self._log.open("a") as log:
            print(text, file=log)

    def _connected(self) -> socket.socket:
        """A follower that is where this store is."""
        link = socket.socket(socket.AF_UNIX)
        try:
            link.connect(self._address)
            self._catch_up(link)
        except BaseException:
            link.close()
            raise
        return link

    def _catch_up(self, link: socket.socket) -> None:
        note, touched = decode_held(_asked(link, HELLO))
        common = common_point(self.replica.note, note)
        _asked(link, PROMISE, NUMBER.pack(self._term))
        tail = None
        if note.is_complete:
            tail = tail_of(self.replica, self._ring, common, [each for each in touched if each[0] > common])
        self._note("join" if tail is None else f"rejoin {note.index - common}")
        if tail is not None:
            _asked(link, TAIL, tail)
            return
        mine = self.replica.note
        _asked(link, JOIN, encode((mine, self.replica.touched.above(mine.released))))
        place: Key | None = BEGINNING
        while place is not None:
            data, place = read_range(self, mine, place, 100_000)
            _asked(link, RANGE, data)


def _asked(link: socket.socket, what: int, *parts: bytes | bytearray) -> bytes:
    send(link, what, *parts)
    return receive(link)[1]
