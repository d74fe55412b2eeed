"""What both roles of a replica share: the note on disk, commits under way, touched keys, the group's clock."""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from shardmq.replication.core.effects import Commit, Effect, Send
from shardmq.replication.core.messages import Message, Touched
from shardmq.replication.core.note import Edits, History, Key, Leads, Log, Note
from shardmq.replication.core.timing import HISTORY_MAX, REJOIN_KEYS_MAX, STALL_SECONDS, TOUCHED_RECORDS_MAX


class TouchedKeys:
    """The keys that recent records touched, in the order of their indexes.

    Attributes:
        floor: of all records above this index the keys are known.
        records_max: how many are kept; more where they are not known to be released.
        keys_max: how many of them one rejoin may fetch.
    """

    def __init__(self, floor: int, rows: Iterable[Touched] = ()) -> None:
        self.floor = floor
        self.rows = deque(rows)
        self.records_max = TOUCHED_RECORDS_MAX
        self.keys_max = REJOIN_KEYS_MAX
        self._keys = sum([len(keys) for _, keys in self.rows])

    def add(self, row: Touched, released: int) -> None:
        """Add the keys of the next record, and forget the oldest where there are too many and it was released."""
        rows = self.rows
        rows.append(row)
        self._keys += len(row[1])
        while (len(rows) > self.records_max or self._keys > self.keys_max) and rows[0][0] <= released:
            self.floor, keys = rows.popleft()
            self._keys -= len(keys)

    def above(self, index: int) -> tuple[Touched, ...]:
        """Return what records above an index touched."""
        found = []
        for row in reversed(self.rows):
            if row[0] <= index:
                break
            found.append(row)
        return tuple(reversed(found))

    def begin(self, index: int) -> None:
        """Know nothing of records up to an index, which is the last one."""
        self.floor = index
        self.rows.clear()
        self._keys = 0

    def cut(self, index: int) -> None:
        """Forget records above an index."""
        while self.rows and self.rows[-1][0] > index:
            self._keys -= len(self.rows.pop()[1])
        self.floor = min(self.floor, index)


class Stored(msgspec.Struct, frozen=True):
    """What a replica's store says about itself when its process starts.

    Attributes:
        note: the note of the last commit.
        touched: keys of the records above `note.released`.
        clock: seconds of the group's clock, as of the last commit, and what passed since as far as that is known.
        is_clock_old: whether it is not known, as the machine was booted since.
    """

    note: Note
    touched: tuple[Touched, ...] = ()
    clock: float = 0.0
    is_clock_old: bool = False


class CommitUnderWay:
    """A commit that was asked for, and what will be on disk with it."""

    __slots__ = ("asked_at", "index", "is_complete", "promised", "serial")

    def __init__(self, serial: int, asked_at: float, note: Note) -> None:
        self.serial = serial
        self.asked_at = asked_at
        self.promised = note.promised
        self.index = note.index
        self.is_complete = note.copied is None


class ReplicaState:
    """What a replica knows in either role, and the effects of the step under way.

    Args:
        name: of the replica.
        stored: what its store says about itself.
        now: seconds on the replica's clock, at the start of its process.
        process: a number that no process of this replica has had before.
        wall: seconds since 1970, at the start of its process.

    Attributes:
        effects: what the step under way asks for.
        now: seconds on the replica's clock, in this step.
        serial: of the last commit.
        is_full: the disk takes no records.
        durable_promised: the highest term promised on disk.
    """

    def __init__(self, name: str, stored: Stored, now: float, process: int, wall: float) -> None:
        note = stored.note
        self.name = name
        self.now = now
        self.effects: list[Effect] = []
        self.incarnation = note.incarnation
        self.promised = self.durable_promised = note.promised
        self.term = note.term
        self.index = note.index
        self.released = note.released
        self.history: History = note.history
        self.leads: Leads = note.leads
        self.copied = note.copied
        self.touched = TouchedKeys(note.released if note.copied is None else note.index, stored.touched)
        self.is_full = False
        self.serial = self.durable_serial = 0
        self._under_way: deque[CommitUnderWay] = deque()
        self._clock = stored.clock
        self._clock_at = now
        self._is_clock_old = stored.is_clock_old
        self._wall_at = wall - now
        self._process = process

    def send(self, to: str, message: Message) -> None:
        """Send a message to another replica."""
        self.effects.append(Send(to, message))

    def commit(
        self,
        edits: Edits = (),
        touched: tuple[Touched, ...] = (),
        cut: int | None = None,
        clear: tuple[Key, Key | None] | None = None,
    ) -> int:
        """Write edits and the note at once, and return the commit's serial number."""
        self.serial += 1
        note = Note(
            self.incarnation,
            self.promised,
            self.term,
            self.index,
            self.released,
            self.history,
            self.copied,
            self.leads,
        )
        self._under_way.append(CommitUnderWay(self.serial, self.now, note))
        self.effects.append(Commit(self.serial, note, self.clock(), edits, touched, cut, clear))
        return self.serial

    def promise(self, term: int) -> None:
        """Write down that lower terms are refused from now on."""
        self.promised = term
        self.commit()

    @property
    def log(self) -> Log:
        """The records that it holds, by their terms."""
        return Log(self.history, self.index, self.leads)

    def begin_term(self, term: int) -> None:
        """Have the next record be the first one of a term, which this replica leads."""
        self.term = term
        self.history = (*self.history, (term, self.index + 1))[-HISTORY_MAX:]
        oldest = self.history[0][0]
        self.leads = (*(lead for lead in self.leads if lead[0] >= oldest), (term, self._draw(term)))

    def _draw(self, term: int) -> int:
        """Return a number that nobody else draws who leads a term: no process leads the same one twice."""
        drawn = blake2b(f"{self.name} {self._process} {term}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn) >> 1

    def append(self, edits: Edits) -> None:
        """Write the next record of the term."""
        self.index += 1
        row = (self.index, tuple(dict.fromkeys((database, key) for database, key, _ in edits)))
        self.touched.add(row, self.released)
        self.commit(edits, (row,))

    def durable(self, serial: int) -> CommitUnderWay:
        """Note that all commits up to one are on disk, and return the last of them."""
        self.durable_serial = serial
        while True:
            commit = self._under_way.popleft()
            if commit.serial == serial:
                self.durable_promised = commit.promised
                return commit

    def has_led(self, term: int) -> bool:
        """Whether an earlier process of this primary took proposals in its term: no lease but its own was left then."""
        return bool(self.history) and self.history[-1][0] == term

    @property
    def is_writing(self) -> bool:
        """Whether a commit is under way: it may still be lost with the process."""
        return bool(self._under_way)

    @property
    def is_stalled(self) -> bool:
        """Whether the disk has taken too long with a commit."""
        return bool(self._under_way) and self.now - self._under_way[0].asked_at > STALL_SECONDS

    def clock(self) -> float:
        """Return the group's clock: as last heard, and the time that passed here since."""
        return self._clock + self.now - self._clock_at

    def hear_clock(self, clock: float) -> None:
        """Set the group's clock by the primary's. It never goes back."""
        self._is_clock_old = False
        if clock > self.clock():
            self._clock = clock
            self._clock_at = self.now

    def begin_clock(self) -> None:
        """Have the clock of a new group be this machine's."""
        self.hear_clock(self._wall_at + self.now)

    def go_on_with_clock(self) -> None:
        """Go on by this machine's clock where nobody is left to tell the group's: all machines were booted meanwhile.

        A host that comes back into a living group hears its primary first, whatever its own clock was set to.
        """
        if self._is_clock_old:
            self.begin_clock()
