"""What replicas of a group tell one another.

    primary                                follower
       │ ── Beat ─────────────────────────────► │   every 0.25 s; a higher term is promised on disk first
       │ ◄───────────────────────── BeatAnswer ─│   the lease rests on it
       │ ◄────────────────────────────── Hello ─│   what it holds; opens a stream, which all below quotes
       │ ── Rejoin ───────────────────────────► │   what it lacks, in one commit; or
       │ ── Join, Range, Range … ─────────────► │   everything, in key ranges, while records stream
       │ ── Record, Record … ─────────────────► │
       │ ◄──────────────────────────────── Ack ─│   all up to an index is on its disk

A stream is a number that the follower draws anew for each Hello. Messages of a stream that was left are dropped, so
that nothing that a process or a connection of before said is believed of the one of now (KAFKA-15221).
"""

from shardmq.bus.messages.base import BusMessage
from shardmq.replication.core.note import Edits, History, Key, Leads

Touched = tuple[int, tuple[Key, ...]]
"""Index of a record, and the keys it wrote or deleted."""


class Beat(BusMessage, frozen=True, tag=20):
    """A primary is there.

    Attributes:
        term: the sender's.
        at: seconds on the sender's clock, taken before it was sent. The answer brings them back.
        stream: that the sender knows of the receiver; 0 for none.
        released: index up to which all is released.
        clock: seconds of the group's clock.
    """

    term: int
    at: float
    stream: int
    released: int
    clock: float


class BeatAnswer(BusMessage, frozen=True, tag=21):
    """A follower heard a beat, and will not campaign before it has been silent for a while."""

    term: int
    at: float


class Refused(BusMessage, frozen=True, tag=22):
    """A message came under a term that is lower than the one promised."""

    term: int


class Unable(BusMessage, frozen=True, tag=23):
    """A follower takes no records for now: its disk is full, or its process is about to end."""

    term: int


class Hello(BusMessage, frozen=True, tag=24):
    """A follower says what it holds, and asks for what it lacks.

    Attributes:
        touched: keys of the records above the index up to which it knows all to be released.
        copied: where to go on with a join, in the term of the message; None where the store is complete.
    """

    term: int
    stream: int
    incarnation: str
    index: int
    released: int
    history: History
    touched: tuple[Touched, ...]
    copied: Key | None = None
    leads: Leads = ()


class Rejoin(BusMessage, frozen=True, tag=25):
    """What a follower lacks, to be committed at once.

    Attributes:
        common: up to which both held the same records.
        index: of the primary's last record, as of which the edits are.
        edits: of all keys that records above `common` touched, on either side; None deletes.
        touched: keys of the records above `common`.
    """

    term: int
    stream: int
    common: int
    index: int
    last_term: int
    released: int
    clock: float
    history: History
    edits: Edits
    touched: tuple[Touched, ...]
    leads: Leads = ()


class Join(BusMessage, frozen=True, tag=26):
    """A follower is to take the whole store anew: ranges follow, and the records above `index`."""

    term: int
    stream: int
    incarnation: str
    index: int
    last_term: int
    clock: float
    history: History
    leads: Leads = ()


class Range(BusMessage, frozen=True, tag=27):
    """All rows of a range, as of the place in the stream.

    Attributes:
        start: first key of the range.
        end: first key behind it; None where it is the last range.
    """

    term: int
    stream: int
    start: Key
    end: Key | None
    edits: Edits


class RangeAck(BusMessage, frozen=True, tag=28):
    """A range is on the follower's disk; it takes the next."""

    term: int
    stream: int
    end: Key | None


class Record(BusMessage, frozen=True, tag=29):
    """Edits that are one record. An index comes once, and one after the other."""

    term: int
    stream: int
    index: int
    released: int
    clock: float
    edits: Edits


class Ack(BusMessage, frozen=True, tag=30):
    """All records up to an index are on the follower's disk.

    Attributes:
        complete: whether it holds all; False while it joins.
    """

    term: int
    stream: int
    index: int
    complete: bool


class Handover(BusMessage, frozen=True, tag=31):
    """A primary has ended its term and transferred to the receiver: nobody's lease is to be waited for.

    Attributes:
        term: the receiver's.
        drop: a replica that the receiver shall drop, the end of a move; "" for none.
    """

    term: int
    drop: str


Message = Beat | BeatAnswer | Refused | Unable | Hello | Rejoin | Join | Range | RangeAck | Record | Ack | Handover
