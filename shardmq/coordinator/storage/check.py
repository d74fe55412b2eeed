"""The check of the coordinator's closed store: every row is read, and nothing is changed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace as replace_fields

from shardmq.coordinator.rules.shard_identity import Member
from shardmq.coordinator.storage.schema import (
    APPLIED,
    BROKER,
    DATABASES,
    DECODERS,
    DURABLE,
    FORMAT,
    GENERATION,
    MEMBERS,
    NEXT_QUEUE,
    NEXT_TRANSACTION,
    NUMBER,
    NUMBERS,
    REPLICA,
    SEEDS,
    decode_members,
    encode,
    name_key,
    number_of,
    stored_value,
)
from shardmq.errors import StoreDamaged
from shardmq.replication.store.touched_keys import is_replica_row
from shardmq.storage.checksums import row_content
from shardmq.storage.engine import Bytes, Edit
from shardmq.storage.redo.edits import LoggedEdit
from shardmq.storage.repair.closed_file import ClosedFile
from shardmq.storage.repair.closed_log import ClosedLog, log_without_note
from shardmq.storage.repair.findings import Finding
from shardmq.storage.repair.repair import write_edits
from shardmq.storage.versions import CHECKSUMS_SINCE
from shardmq.topology.entities import Queue

_NAMES: Final = {
    b"exchanges": "exchange",
    b"queues": "queue",
    b"vhosts": "virtual host",
    b"users": "user",
    b"topics": "topic",
}

_STATE: Final = NUMBERS[b"state"]

_IRREPLACEABLE: Final = frozenset({NEXT_QUEUE, NEXT_TRANSACTION})
"""Rows of `state` whose loss would have numbers given twice."""


@dataclass(slots=True)
class Known:
    """What the coordinator knows, as far as it can be read.

    Attributes:
        queues: durable ones.
        deleted: ids of queues that a shard is still to drop.
        decisions: attempts that count, by transaction.
        undecided: numbers of transactions.
        next_transaction: number of the next one.
        broker: its id; "" where that is not known.
        members: the stores that serve as shards, by number.
    """

    queues: list[Queue] = field(default_factory=list)
    deleted: set[int] = field(default_factory=set)
    decisions: dict[int, list[int]] = field(default_factory=dict)
    undecided: set[int] = field(default_factory=set)
    next_transaction: int | None = None
    broker: str = ""
    members: dict[int, Member] = field(default_factory=dict)


class ClosedCoordinatorStore:
    """The coordinator's store, which no process has open.

    Args:
        folder: of the coordinator.

    Attributes:
        file: the data file.
        version: of its format.
        known: what could be read of it so far.
        log: what is in the redo log and not yet in the file.

    Raises:
        StoreRefused: it cannot be read at all.
    """

    def __init__(self, folder: Path) -> None:
        self._closed = ClosedFile(folder, FORMAT, DATABASES)
        self.file, self.version = self._closed.file, self._closed.version
        self.known = Known()
        try:
            self.log = self._read_log(folder)
        except BaseException:
            self._closed.close()
            raise

    def close(self) -> None:
        """Close the store."""
        self._closed.close()

    def entries(self) -> int:
        """Return about how many rows the store has."""
        return self._closed.count()

    def check(self, seen: Callable[[], None] = lambda: None) -> Iterator[Finding]:
        """Yield everything that is wrong with the store; readable rows are noted in `known`.

        Args:
            seen: called for every row.
        """
        for number, name in enumerate(DATABASES):
            for key, content in self._rows(number):
                seen()
                if content is None or not self._read(name, key, content):
                    yield self._damaged(name, key)
        if self.log.is_unnoted:
            yield from self._lost_notes()

    def keys(self, number: int) -> list[bytes]:
        """Return the keys of a database, as the next start would find them."""
        return [key for key, _ in self._rows(number)]

    def _rows(self, number: int) -> Iterator[tuple[bytes, bytes | None]]:
        """The rows of a database as the next start would find them; None for content that is not what was written."""
        recent = self.log.overlay.get(number, {})
        yield from ((key, content) for key, content in recent.items() if content is not None)
        for key, value in self._closed.rows(number):
            if key not in recent:
                yield key, self._content(number, key, value)

    def _content(self, number: int, key: bytes, value: bytes) -> bytes | None:
        return row_content(SEEDS[number], key, value) if self.version >= CHECKSUMS_SINCE else value

    def _read_log(self, folder: Path) -> ClosedLog:
        value = self._closed.get(_STATE, APPLIED)
        if value is None:
            empty = ClosedLog(folder, None, len(DATABASES))
            return log_without_note(folder, len(DATABASES), self._is_in) if self.entries() else empty
        applied = self._content(_STATE, APPLIED, value)
        if applied is None:
            raise StoreDamaged(self.file, "the number of the last commit in it is not what was written", "state")
        return ClosedLog(folder, number_of(applied), len(DATABASES))

    def _is_in(self, edit: LoggedEdit) -> bool:
        """Whether an edit of the log is in the file, but for what is lost of `state`."""
        number, key, value = edit
        stored = self._closed.get(number, key)
        if number == _STATE and stored is None:
            return True
        return stored is value if stored is None or value is None else value == self._content(number, key, stored)

    def _read(self, database: bytes, key: bytes, content: bytes) -> bool:
        """Whether a row can be decoded; its content is noted then."""
        if database == REPLICA:
            return is_replica_row(key, content)
        try:
            found = DECODERS.get(database, bytes)(content)
        except msgspec.DecodeError:
            return False
        self._note(database, key, found)
        return True

    def _note(self, database: bytes, key: bytes, found: Any) -> None:
        known = self.known
        if database == b"queues" and found.boot == DURABLE:
            known.queues.append(found.value)
        elif database == b"tombstones":
            known.deleted.add(number_of(key))
        elif database == b"decisions":
            known.decisions[number_of(key)] = found
        elif database == b"transactions":
            known.undecided.add(found.number)
        elif database == b"state" and key == NEXT_TRANSACTION:
            known.next_transaction = number_of(found)
        elif database == b"state" and key == BROKER:
            known.broker = found.decode()
        elif database == b"state" and key == MEMBERS:
            known.members = decode_members(found)

    def _lost_notes(self) -> Iterator[Finding]:
        """Yield the notes that are not there any more: their page was damaged, and left out."""
        there = self.keys(_STATE)
        lost = [key for key in (BROKER, GENERATION, MEMBERS) if key not in there]
        for key in lost:
            yield self._finding(key, f"the note '{key.decode()}' is lost; `shardmq store adopt` goes on without it")
        what = "the note of which commits of the redo log are in it is lost"
        if lost:
            yield self._finding(APPLIED, what)
        else:
            edits: tuple[Edit, ...] = ((_STATE, APPLIED, NUMBER.pack(self.log.last)),)
            yield self._finding(APPLIED, what, "notes that all are, as they are", edits)

    def _finding(self, key: bytes, what: str, mend: str = "", edits: tuple[Edit, ...] = ()) -> Finding:
        return Finding(
            store="coordinator",
            file=str(self.file),
            database="state",
            key=key.hex(),
            what=what,
            mend=mend,
            edits=edits,
        )

    def _damaged(self, database: bytes, key: bytes) -> Finding:
        number = DATABASES.index(database)
        edits: tuple[Edit, ...] = ((number, key, None),)
        mend = "makes the store one of no replica" if database == REPLICA else "deletes the row"
        title = ""
        if database in _NAMES:
            vhost, _, name = key.decode(errors="replace").rpartition("\0")
            title = f"{_NAMES[database]} '{name}'" + (f" in vhost '{vhost}'" if vhost else "")
            mend = f"deletes {title}; declare it again"
        if database == b"queues" or (database == b"state" and key in _IRREPLACEABLE):
            edits, mend = (), ""
        return Finding(
            store="coordinator",
            file=str(self.file),
            database=database.decode(),
            key=key.hex(),
            title=title,
            what="the row is not what was written",
            mend=mend,
            edits=edits,
        )


def mend(folder: Path, edits: Iterable[Edit]) -> None:
    """Write a repair to the coordinator's closed store, and with it what is in the redo log and not yet in the file.

    A store that was a replica's is none any more: its host gets a new one from the others.
    """
    store = ClosedCoordinatorStore(folder)
    log, version = store.log, store.version
    edits = list(edits)
    if edits:  # it is not what the other replicas have any more
        edits += [(NUMBERS[REPLICA], key, None) for key in store.keys(NUMBERS[REPLICA])]
    store.close()
    applied = [] if log.is_new else [(_STATE, APPLIED, NUMBER.pack(log.last))]
    sealed = stored_value if version >= CHECKSUMS_SINCE else _as_it_is
    write_edits(folder, DATABASES, [*log.edits, *edits, *applied], sealed)


def is_well(number: int, key: bytes, value: bytes) -> bool:
    """Whether a row, as it lies in LMDB, is what was written, and may be in a store that is made of what is left."""
    return number != NUMBERS[REPLICA] and row_content(SEEDS[number], key, value) is not None


def taken_from_shard(finding: Finding, queues: Mapping[bytes, Queue]) -> Finding:
    """A finding about a queue's row, with the repair that a shard's own record of that queue makes possible.

    Args:
        finding: about any row of the coordinator's store.
        queues: durable queues of all shards, by their keys (`queue_key`).
    """
    queue = queues.get(bytes.fromhex(finding.key))
    if finding.database != "queues" or queue is None:
        return finding
    value = encode((DURABLE, replace_fields(queue, policy={})))  # what policies gave it follows from the policies
    edits: tuple[Edit, ...] = ((DATABASES.index(b"queues"), bytes.fromhex(finding.key), value),)
    return replace(finding, mend=f"takes it from shard {queue.shard}", edits=edits)


def queue_key(queue: Queue) -> bytes:
    """The key of a queue's row."""
    return name_key(queue.vhost, queue.name)


def _as_it_is(_number: int, _key: bytes, value: Bytes) -> Bytes:
    """The first version has no checksums."""
    return value
