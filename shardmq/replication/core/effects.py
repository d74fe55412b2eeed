"""What a replica wants done, in the order in which it says so."""

import msgspec

from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import Message, Touched
from shardmq.replication.core.note import Edits, Key, Note


class Send(msgspec.Struct, frozen=True):
    """Send a message to another replica, behind all that was sent to it before."""

    to: str
    message: Message


class Commit(msgspec.Struct, frozen=True):
    """Write all of this at once, behind all commits of before; then say Durable.

    Attributes:
        serial: for the answer.
        note: takes the place of the note of before.
        clock: seconds of the group's clock, to be kept for the next start.
        edits: of the owner's rows.
        touched: rows to be kept beside the records: index, and the keys of its edits. Those up to `note.released` may
            go.
        cut: rows of records above this index go first; None for none.
        clear: a range of keys whose rows go first; None for none.
    """

    serial: int
    note: Note
    clock: float
    edits: Edits = ()
    touched: tuple[Touched, ...] = ()
    cut: int | None = None
    clear: tuple[Key, Key | None] | None = None


class ReadKeys(msgspec.Struct, frozen=True):
    """Read rows as of now: with all commits that were asked for, durable or not. Answer by KeysRead."""

    request: int
    keys: tuple[Key, ...]


class ReadRange(msgspec.Struct, frozen=True):
    """Read rows from a key on, as of now, about so many bytes. Answer by RangeRead."""

    request: int
    start: Key
    bytes: int


class ReadGroup(msgspec.Struct, frozen=True):
    """Read the group's key, linearizably. Answer by GroupRead or ReadLost."""


class Swap(msgspec.Struct, frozen=True):
    """Write the group's key if it still has a revision. Answer by Swapped, SwapRefused or SwapLost."""

    revision: int
    group: Group


class Leading(msgspec.Struct, frozen=True):
    """The replica is the primary of a term, and takes proposals.

    Attributes:
        term: that it leads.
        is_sure: whether it knew all that it holds to be released, before this term, by enough replicas.
    """

    term: int
    is_sure: bool


class Deposed(msgspec.Struct, frozen=True):
    """The replica no longer is the primary of a term: what it has not answered, it never may."""

    term: int


class Accepted(msgspec.Struct, frozen=True):
    """A proposal is a record; what rests on it may be answered once it is released."""

    number: int
    index: int


class Rejected(msgspec.Struct, frozen=True):
    """A proposal was not taken.

    Attributes:
        reason: a sentence for the one who proposed it.
    """

    number: int
    reason: str


class Released(msgspec.Struct, frozen=True):
    """All up to an index is on the disks of the in-sync set: look whether it may be answered."""

    index: int


class Transferred(msgspec.Struct, frozen=True):
    """A transfer has ended.

    Attributes:
        done: whether the other replica leads; otherwise this one goes on.
    """

    to: str
    done: bool


class UncleanElection(msgspec.Struct, frozen=True):
    """An operator's unclean election is asked for: what it may lose.

    Attributes:
        kept: index of the last record that is kept.
        released: index that is known to have been released; all between may be lost as well as what came later. 0
            where the store is of an incarnation of before: all that the group released since may be lost.
        in_sync: replicas that hold what is lost.
    """

    kept: int
    released: int
    in_sync: tuple[str, ...]


class CommandRefused(msgspec.Struct, frozen=True):
    """An operator's command was not carried out.

    Attributes:
        reason: a sentence for the operator.
    """

    reason: str


class EtcdBehind(msgspec.Struct, frozen=True):
    """The group's key is older than what the replica was told before: etcd was restored from a snapshot.

    Attributes:
        term: that etcd knows.
        promised: that this replica has on disk.
    """

    term: int
    promised: int


Effect = (
    Send
    | Commit
    | ReadKeys
    | ReadRange
    | ReadGroup
    | Swap
    | Leading
    | Deposed
    | Accepted
    | Rejected
    | Released
    | Transferred
    | UncleanElection
    | CommandRefused
    | EtcdBehind
)
