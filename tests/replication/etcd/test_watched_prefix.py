"""What a watcher knows never goes back, and misses nothing for good, whatever comes in which order."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from shardmq.replication.etcd.messages import Event, Header, KeyValue, RangeAnswer, WatchAnswer
from shardmq.replication.etcd.watching.watched_prefix import Change, WatchedPrefix

KEYS = [b"a", b"b", b"c"]


@dataclass
class History:
    """All that happened in an etcd: one event a revision."""

    events: list[Event] = field(default_factory=list)

    def write(self, key: bytes, is_deleted: bool) -> None:
        revision = len(self.events) + 1
        kind = "DELETE" if is_deleted else "PUT"
        self.events.append(Event(KeyValue(key, b"%d" % revision, mod_revision=revision), kind))

    def at(self, revision: int) -> dict[bytes, KeyValue]:
        state = {event.kv.key: event for event in self.events[:revision]}
        return {key: event.kv for key, event in state.items() if event.type == "PUT"}

    def reading(self, revision: int, since: int = 0) -> RangeAnswer:
        there = self.at(revision)
        kvs = [kv for kv in there.values() if kv.mod_revision >= since]
        return RangeAnswer(kvs, len(there), header=Header(revision))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(KEYS), st.booleans()),
        st.tuples(st.just("read"), st.integers(0, 4), st.none()),
        st.tuples(st.just("look"), st.integers(0, 4), st.none()),
        st.tuples(st.just("stream"), st.integers(1, 3), st.none()),
        st.tuples(st.just("reopen"), st.integers(0, 2), st.none()),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_comes_late_twice_or_not_at_all(steps: list[tuple[str, object, object]]) -> None:
    history, known, told = History(), WatchedPrefix(), Told()
    told.take(known.read(history.reading(0)))
    place = 0  # where the stream is
    for what, argument, is_deleted in steps:
        now = len(history.events)
        if what == "write":
            assert isinstance(argument, bytes)
            history.write(argument, bool(is_deleted))
            continue
        assert isinstance(argument, int)
        if what == "read":  # an answer that is so many revisions old
            told.take(known.read(history.reading(max(0, now - argument))))
        elif what == "look":
            told.take(known.look(history.reading(max(0, now - argument), known.revision + 1)) or [])
        elif what == "stream":
            events = history.events[place : place + argument]
            place += len(events)
            told.take(known.receive(WatchAnswer(events=events, header=Header(now))))
        else:  # behind what is known; events before may be lost
            place = known.revision
    now = len(history.events)
    looked = known.look(history.reading(now, known.revision + 1))
    told.take(known.read(history.reading(now)) if looked is None else looked)
    assert told.values == {key: kv.value for key, kv in history.at(now).items()}
    assert known.revision == now


class Told:
    """Who is told of changes, and takes offence at old ones."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._revisions: dict[bytes, int] = {}

    def take(self, changes: list[Change]) -> None:
        for change in changes:
            assert change.revision > self._revisions.get(change.key, 0)
            self._revisions[change.key] = change.revision
            if change.value is None:
                del self.values[change.key]
            else:
                self.values[change.key] = change.value
