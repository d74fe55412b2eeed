"""The register on a thread of its own, for processes whose loops wait for what comes.

    loop     read, swap, watch, change ─► thread: client, register, watchers ─► etcd
    loop  ◄─ `fileno` is readable; `take` ◄─ thread

A call says what is wanted and returns at once; what comes of it is `News`. Time that a loop takes for a pass is none in
which etcd goes unheard, and the other way about.
"""

import logging
import math
import os
import secrets
import select
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic

from shardmq.replication.core import events
from shardmq.replication.core.group import Group
from shardmq.replication.etcd.change import Change, Edit, Outcome
from shardmq.replication.etcd.client import EtcdClient
from shardmq.replication.etcd.errors import EtcdError, UnreadableValue
from shardmq.replication.etcd.news import Failed, ForGroup, Listed, News, Seen, Stored
from shardmq.replication.etcd.register import Entry, NotSwapped, Register, SwapOutcome, Swapped, Value
from shardmq.replication.etcd.url import EtcdUrl
from shardmq.replication.etcd.values import GROUPS, HOSTS, Host, Kind, fault_of
from shardmq.replication.etcd.watching.watcher import Watcher
from shardmq.runtime.clock import boottime

ANSWER_SECONDS: Final = 1.0
"""For one reading or swap. What a replica wants of its group is out of date after that."""

CLOSE_SECONDS: Final = 2.0
"""The thread ends within this time, as it never blocks; one that does not is left to the process's end."""

_log = logging.getLogger(__name__)


class BackgroundRegister:
    """The register of one broker, asked from a thread of its own.

    Args:
        url: where etcd is.
        session: of the host or process, for people who look at what was written; it is made unique here.

    Raises:
        InvalidUrl: a file that the URL names cannot be used.
    """

    def __init__(self, url: EtcdUrl, session: str) -> None:
        client = EtcdClient(url)
        self._news: SimpleQueue[News] = SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._worker = _Worker(client, url.prefix, f"{session}-{secrets.token_hex(6)}", self._tell)
        self._thread = threading.Thread(target=self._run, name="etcd", daemon=True)
        self._has_ended = False
        self._thread.start()

    def fileno(self) -> int:
        """A descriptor that is readable while `take` has something."""
        return self._wake

    def take(self) -> list[News]:
        """Return what has come, in order, without waiting.

        Raises:
            RuntimeError: the thread has ended by an error of its own.
        """
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return []
        if self._has_ended:
            raise RuntimeError("the thread that asks etcd has ended by an error, which the log has")
        news = []
        while True:
            try:
                news.append(self._news.get_nowait())
            except Empty:
                return news

    def wait(self, seconds: float) -> bool:
        """Wait for news, for commands that have nothing else to do; returns whether there is any."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        return bool(poll.poll(math.ceil(max(0.0, seconds) * 1000)))

    def read(self, group: str) -> None:
        """Read a group's key, as the newest majority has it. News: GroupRead or ReadLost."""
        deadline = boottime() + ANSWER_SECONDS
        self._worker.ask(lambda worker: worker.read(group, deadline))

    def swap(self, group: str, revision: int, value: Group) -> None:
        """Write a group's key, if it still has a revision. News: Swapped, SwapRefused or SwapLost.

        Raises:
            ValueError: the value is not what one may be.
        """
        if fault := fault_of(value):
            raise ValueError(fault)
        deadline = boottime() + ANSWER_SECONDS
        self._worker.ask(lambda worker: worker.swap(group, revision, value, deadline))

    def watch_group(self, group: str) -> None:
        """Be told of a group's value, now and whenever it changes. News: GroupSeen."""
        self._worker.ask(lambda worker: worker.watched(GROUPS).tell_group(group))

    def watch(self, kind: Kind[Any]) -> None:
        """Be told of all values of a kind, now and whenever one changes. News: Seen."""
        self._worker.ask(lambda worker: worker.watched(kind).tell_all())

    def list(self, kind: Kind[Any], seconds: float = 5.0) -> None:
        """Read all values of a kind. News: Listed or Failed."""
        deadline = boottime() + seconds
        self._worker.ask(lambda worker: worker.list(kind, deadline))

    def change(
        self,
        kind: Kind[Value],
        name: str,
        edit: Edit[Value],
        seconds: float = math.inf,
    ) -> None:
        """Have a value be what it should be, however often somebody else writes it. News: Stored or Failed.

        Args:
            kind: of the value.
            name: of the host or group; "" for the broker.
            edit: called on the thread with the value as it is, None where there is none; returns what it should be, or
                None to leave it. It may be called again with what it has made: after a lost answer, nobody knows.
            seconds: how long to try.
        """
        deadline = boottime() + seconds
        self._worker.ask(lambda worker: worker.change(kind, name, edit, deadline))

    def create(self, kind: Kind[Value], name: str, value: Value, seconds: float = math.inf) -> None:
        """Write a value that is not there yet. News: Stored with what is there, by whomever, or Failed."""
        self.change(kind, name, lambda there: value if there is None else None, seconds)

    def put_host(self, name: str, host: Host) -> None:
        """Write what is to be known of a host. News: Stored or Failed."""
        self.change(HOSTS, name, lambda _: host)

    def remove(self, kind: Kind[Value], name: str, seconds: float = math.inf) -> None:
        """Delete a value. News: Stored or Failed."""
        deadline = boottime() + seconds
        self._worker.ask(lambda worker: worker.change(kind, name, None, deadline))

    @property
    def fault(self) -> str:
        """Why the last look at what is watched failed; "" while all is well."""
        return self._worker.fault

    @property
    def confirmed(self) -> float:
        """When all that is watched was last known to be what etcd has, by `boottime`; 0 before that."""
        return self._worker.confirmed

    def close(self) -> None:
        """End the thread. What is under way may still take effect; no news come of it."""
        self._worker.ask(_Worker.end)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._worker.close()
            os.close(self._wake)

    def _tell(self, news: News) -> None:
        self._news.put(news)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        try:
            self._worker.run()
        finally:
            self._has_ended = True
            os.eventfd_write(self._wake, 1)


class _Worker:
    """What the thread has. All but `ask`, `fault` and `confirmed` is of it alone."""

    def __init__(self, client: EtcdClient, prefix: str, session: str, tell: Callable[[News], None]) -> None:
        self.client = client
        self.tell = tell
        self.register = Register(client, prefix, session)
        self._changing = Register(client, prefix, f"{session}.c")  # its swaps of a group must not be in a replica's way
        self.fault = ""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._asked: SimpleQueue[Callable[[_Worker], object]] = SimpleQueue()
        self._watched: dict[str, _Watched[Any]] = {}
        self._changes: dict[tuple[str, str], deque[Change[Any]]] = {}
        self._is_over = False

    def ask(self, what: "Callable[[_Worker], object]") -> None:
        """Have something done on the thread."""
        self._asked.put(what)
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Serve until `end`."""
        client = self.client
        poll = select.poll()
        poll.register(client.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        try:
            while not self._is_over:
                client.turn()
                self._look_for_faults()
                poll.poll(math.ceil(client.wait_seconds() * 1000))
                self._do_what_was_asked()
        finally:
            client.close()

    def end(self) -> None:
        """End the thread."""
        self._is_over = True

    def close(self) -> None:
        """Close what is left, once the thread has ended."""
        os.close(self._wake)

    @property
    def confirmed(self) -> float:
        """When all watched kinds were last known to be up to date."""
        return min([watched.watcher.confirmed for watched in list(self._watched.values())], default=0.0)

    def read(self, group: str, deadline: float) -> None:
        """Read a group's key for its replica."""

        def answered(outcome: Entry[Group] | EtcdError) -> None:
            if isinstance(outcome, UnreadableValue):
                _log.error("%s", outcome)
            if isinstance(outcome, EtcdError) or outcome.value is None:
                self.tell(ForGroup(group, events.ReadLost()))
            else:
                self.tell(ForGroup(group, events.GroupRead(outcome.revision, outcome.value)))

        self.register.read(GROUPS, group, deadline, answered)

    def swap(self, group: str, revision: int, value: Group, deadline: float) -> None:
        """Swap a group's key for its replica."""

        def answered(outcome: SwapOutcome[Group]) -> None:
            event: events.Swapped | events.SwapRefused | events.SwapLost = events.SwapLost()
            if isinstance(outcome, Swapped):
                event = events.Swapped(outcome.entry.revision)
            elif isinstance(outcome, NotSwapped) and outcome.entry.value is not None:
                event = events.SwapRefused(outcome.entry.revision, outcome.entry.value)
            # All else is lost, though some of it surely had no effect: the replica reads before it goes on, and does
            # not ask again at once what was refused at once.
            self.tell(ForGroup(group, event))

        self.register.swap(GROUPS, Entry(group, None, revision), value, deadline, answered)

    def list(self, kind: Kind[Any], deadline: float) -> None:
        """Read all values of a kind."""

        def answered(outcome: list[Entry[Any]] | EtcdError) -> None:
            if isinstance(outcome, EtcdError):
                self.tell(Failed(kind, "", outcome))
            else:
                self.tell(Listed(kind, tuple(outcome)))

        self.register.read_all(kind, deadline, answered)

    def watched(self, kind: Kind[Any]) -> "_Watched[Any]":
        """A kind that is watched from now on."""
        if kind.folder not in self._watched:
            self._watched[kind.folder] = _Watched(self, kind)
        return self._watched[kind.folder]

    def change(self, kind: Kind[Value], name: str, edit: Edit[Value] | None, deadline: float) -> None:
        """Begin with a change, behind those of the same value."""
        waiting = self._changes.setdefault((kind.folder, name), deque())

        def done(outcome: Outcome[Value]) -> None:
            waiting.popleft()
            if isinstance(outcome, EtcdError):
                self.tell(Failed(kind, name, outcome))
            else:
                self.tell(Stored(kind, name, *outcome))
            if waiting:
                waiting[0].begin()

        waiting.append(Change(self.client, self._changing, kind, name, edit, deadline, done))
        if len(waiting) == 1:
            waiting[0].begin()

    def _do_what_was_asked(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return
        while True:
            try:
                what = self._asked.get_nowait()
            except Empty:
                return
            what(self)

    def _look_for_faults(self) -> None:
        faults = [str(watched.watcher.fault) for watched in self._watched.values() if watched.watcher.fault]
        before, self.fault = self.fault, faults[0] if faults else ""
        if self.fault and not before:
            _log.warning("%s; until it answers, nothing changes about who is primary", self.fault)
        elif before and not self.fault:
            _log.info("etcd answers again")


class _Watched(Generic[Value]):
    """A kind that is watched, and who is to be told what of it."""

    def __init__(self, worker: _Worker, kind: Kind[Value]) -> None:
        self._tell = worker.tell
        self._kind = kind
        self._known: dict[str, Entry[Value]] = {}
        self._tells_all = self._has_read = False
        self._groups: set[str] = set()
        self.watcher: Watcher = worker.register.watch(kind, self._changed)

    def tell_all(self) -> None:
        """Tell of all values."""
        self._tells_all = True
        if self._has_read:
            self._tell(Seen(self._kind, tuple(self._known.values())))

    def tell_group(self, group: str) -> None:
        """Tell the replica of a group."""
        self._groups.add(group)
        if group in self._known:
            self._tell_replica(self._known[group])

    def _changed(self, news: list[Entry[Value] | UnreadableValue]) -> None:
        entries = []
        for entry in news:
            if isinstance(entry, UnreadableValue):
                _log.error("%s", entry)
                continue
            entries.append(entry)
            if entry.value is None:
                self._known.pop(entry.name, None)
                continue
            self._known[entry.name] = entry
            if entry.name in self._groups:
                self._tell_replica(entry)
        is_first, self._has_read = not self._has_read, True
        if self._tells_all and (entries or is_first):
            self._tell(Seen(self._kind, tuple(entries)))

    def _tell_replica(self, entry: Entry[Value]) -> None:
        assert isinstance(entry.value, Group)
        self._tell(ForGroup(entry.name, events.GroupSeen(entry.revision, entry.value)))
