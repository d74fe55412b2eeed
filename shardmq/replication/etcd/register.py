"""The register of a broker in etcd: typed values, read, swapped and watched.

A swap writes a key if it has not been written since it was read: compare-and-swap by its revision. The answer to a swap
can be lost. Then nobody knows whether it took effect, and it may still do so later, from a member that was frozen. So a
name is closed to further swaps until it was read again, and what was read is judged:

    the swap's mark is there                    it took effect
    the key was written by somebody else since  it will not take effect any more
    the key is as before                        open: it may still take effect, until the key is written once more

A swap that is open needs no waiting: the next one expects the same revision, so of both only one takes effect.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError, OutcomeUnknown, UnreadableValue
from shardmq.replication.etcd.messages import (
    KeyValue,
    RangeAnswer,
    TxnAnswer,
    delete_request,
    prefix_end,
    range_request,
    swap_request,
)
from shardmq.replication.etcd.values import Kind, decode, encode
from shardmq.replication.etcd.watching.looks import Looks
from shardmq.replication.etcd.watching.watched_prefix import Change
from shardmq.replication.etcd.watching.watcher import Watcher

Value = TypeVar("Value", bound=msgspec.Struct)

_NAME: Final = re.compile(r"[\w.-]+")


@dataclass(frozen=True)  # with slots, Python 3.11 cannot make `Entry[…](…)`
class Entry(Generic[Value]):
    """What a key has.

    Attributes:
        name: of the host or group; "" for the broker.
        value: None where there is none.
        revision: in which it was written; 0 where it is not there, which is what a swap expects that creates it.
        mark: of the swap that wrote it.
    """

    name: str
    value: Value | None
    revision: int
    mark: str = ""


class Verdict(Enum):
    """What became of a swap whose answer was lost."""

    TOOK_EFFECT = "it took effect"
    OVERTAKEN = "somebody else wrote the key; it will not take effect any more"
    OPEN = "it may still take effect, until the key is written once more"


@dataclass(frozen=True)  # with slots, Python 3.11 cannot make `Swapped[…](…)`
class Swapped(Generic[Value]):
    """A swap took effect.

    Attributes:
        entry: what the key has now.
    """

    entry: Entry[Value]


@dataclass(frozen=True)  # with slots, Python 3.11 cannot make `NotSwapped[…](…)`
class NotSwapped(Generic[Value]):
    """A swap did not take effect, and will not: the key has been written since it was read.

    Attributes:
        entry: what it has now; its mark may be that of an own swap before, which was open.
    """

    entry: Entry[Value]


@dataclass(frozen=True, slots=True)
class SwapUnknown:
    """The answer to a swap was lost. Read the name again, and judge the swap by what was read.

    Attributes:
        error: how it was lost.
        mark: of the swap.
        expected: the revision that it expects.
    """

    error: OutcomeUnknown
    mark: str
    expected: int

    def verdict(self, entry: Entry[Any]) -> Verdict:
        """What became of it, by an entry that was read after it was lost."""
        if entry.mark == self.mark:
            return Verdict.TOOK_EFFECT
        return Verdict.OPEN if entry.revision == self.expected else Verdict.OVERTAKEN


SwapOutcome = Swapped[Value] | NotSwapped[Value] | SwapUnknown | EtcdError


class Register:
    """The register of one broker.

    Args:
        client: of etcd.
        prefix: of all keys, as in its URL.
        session: of this process, made up at its start; it must not come again.
    """

    def __init__(self, client: EtcdClient, prefix: str, session: str) -> None:
        self._client = client
        self._prefix = prefix
        self._session = session
        self._looks = Looks(client)
        self._swaps = 0
        self._unread: set[str] = set()
        self._under_way: set[str] = set()

    def read(
        self, kind: Kind[Value], name: str, deadline: float, done: Callable[[Entry[Value] | EtcdError], None]
    ) -> None:
        """Read one value, as the newest majority has it.

        Args:
            kind: of the value.
            name: of the host or group; "" for the broker.
            deadline: until when an answer is of use, by `boottime`.
            done: called from the client's `turn` with the entry, or what went wrong; `UnreadableValue` for a value that
                is not what should be there.
        """
        key = self._key(kind, name)
        was_unread = key in self._unread

        def answered(outcome: RangeAnswer | EtcdError) -> None:
            if isinstance(outcome, EtcdError):
                done(outcome)
                return
            if was_unread:
                self._unread.discard(key)
            done(self._entry(kind, name, outcome.kvs))

        self._client.ask(range_request(key.encode()), deadline, answered)

    def read_all(
        self, kind: Kind[Value], deadline: float, done: Callable[[list[Entry[Value]] | EtcdError], None]
    ) -> None:
        """Read all values of a kind, by name.

        Args:
            kind: of the values.
            deadline: until when an answer is of use, by `boottime`.
            done: called from the client's `turn` with the entries, or what went wrong.
        """
        folder = self._folder(kind)

        def answered(outcome: RangeAnswer | EtcdError) -> None:
            if isinstance(outcome, EtcdError):
                done(outcome)
                return
            try:
                done([self._decoded(kind, kv.key, kv.value, kv.mod_revision) for kv in outcome.kvs])
            except UnreadableValue as fault:
                done(fault)

        self._client.ask(range_request(folder, prefix_end(folder)), deadline, answered)

    def swap(
        self,
        kind: Kind[Value],
        entry: Entry[Value],
        value: Value,
        deadline: float,
        done: Callable[[SwapOutcome[Value]], None],
    ) -> None:
        """Write a value, if its key has not been written since an entry was read.

        Args:
            kind: of the value.
            entry: what was read.
            value: what is to be there.
            deadline: until when an answer is of use, by `boottime`.
            done: called from the client's `turn`: `Swapped`, `NotSwapped`, `SwapUnknown`, or why nothing was tried.

        Raises:
            RuntimeError: a swap of that name is under way, or the outcome of one is unknown and nothing was read since.
            ValueError: the value is not what one may be, such as a group whose primary is not in sync.
        """
        key = self._key(kind, entry.name)
        if key in self._under_way:
            raise RuntimeError(f"a swap of {key} is under way")
        if key in self._unread:
            raise RuntimeError(f"the outcome of a swap of {key} is unknown, and it was not read since")
        self._swaps += 1
        mark = f"{self._session}-{self._swaps}"
        data = encode(value, mark)
        self._under_way.add(key)

        def answered(outcome: TxnAnswer | EtcdError) -> None:
            self._under_way.discard(key)
            if isinstance(outcome, OutcomeUnknown):
                self._unread.add(key)
                done(SwapUnknown(outcome, mark, entry.revision))
            elif isinstance(outcome, EtcdError):
                done(outcome)
            elif outcome.succeeded:
                done(Swapped(Entry(entry.name, value, outcome.header.revision, mark)))
            else:
                part = outcome.responses[0].response_range if outcome.responses else None
                found = self._entry(kind, entry.name, part.kvs if part else [])
                done(found if isinstance(found, EtcdError) else NotSwapped(found))

        self._client.ask(swap_request(key.encode(), data, entry.revision), deadline, answered)

    def remove(
        self, kind: Kind[Value], entry: Entry[Value], deadline: float, done: Callable[[bool | EtcdError], None]
    ) -> None:
        """Delete a value, if its key has not been written since an entry was read.

        Args:
            kind: of the value.
            entry: what was read.
            deadline: until when an answer is of use, by `boottime`.
            done: called from the client's `turn` with whether it was deleted, or what went wrong.
        """

        def answered(outcome: TxnAnswer | EtcdError) -> None:
            done(outcome if isinstance(outcome, EtcdError) else outcome.succeeded)

        self._client.ask(delete_request(self._key(kind, entry.name).encode(), entry.revision), deadline, answered)

    def watch(self, kind: Kind[Value], changed: Callable[[list[Entry[Value] | UnreadableValue]], None]) -> Watcher:
        """Be told of all values of a kind, and of each of them when it changes; never of an older one after a newer.

        Args:
            kind: of the values.
            changed: called from the client's `turn` with what is new, at first with all there is; an entry without a
                value is of one that was deleted.

        Returns:
            The watcher, to be closed when it is of no use any more.
        """

        def tell(changes: list[Change]) -> None:
            entries: list[Entry[Value] | UnreadableValue] = []
            for change in changes:
                try:
                    entries.append(self._decoded(kind, change.key, change.value, change.revision))
                except UnreadableValue as fault:
                    entries.append(fault)
            changed(entries)

        return Watcher(self._client, self._looks, self._folder(kind), tell)

    def _entry(self, kind: Kind[Value], name: str, kvs: list[KeyValue]) -> Entry[Value] | UnreadableValue:
        if not kvs:
            return Entry(name, None, 0)
        try:
            return self._decoded(kind, kvs[0].key, kvs[0].value, kvs[0].mod_revision)
        except UnreadableValue as fault:
            return fault

    def _decoded(self, kind: Kind[Value], key: bytes, data: bytes | None, revision: int) -> Entry[Value]:
        path = key.decode(errors="replace")
        name = "" if kind.is_single else path.removeprefix(self._folder(kind).decode())
        if data is None:
            return Entry(name, None, revision)
        value, mark = decode(kind, path, data)
        return Entry(name, value, revision, mark)

    def _folder(self, kind: Kind[Any]) -> bytes:
        return f"/{self._prefix}/{kind.folder}{'' if kind.is_single else '/'}".encode()

    def _key(self, kind: Kind[Any], name: str) -> str:
        if kind.is_single:
            return f"/{self._prefix}/{kind.folder}"
        if not _NAME.fullmatch(name):
            raise ValueError(f"'{name}' is no name: letters, digits, '.', '-' and '_'")
        return f"/{self._prefix}/{kind.folder}/{name}"
