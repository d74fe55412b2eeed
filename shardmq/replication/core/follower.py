"""The role of followers and learners: promises, acknowledgements, campaigns."""

from zlib import crc32

from shardmq.replication.core.group import Group
from shardmq.replication.core.messages import (
    Ack,
    Beat,
    BeatAnswer,
    Hello,
    Join,
    Range,
    RangeAck,
    Record,
    Refused,
    Rejoin,
    Unable,
)
from shardmq.replication.core.note import BEGINNING, Key
from shardmq.replication.core.register import Register
from shardmq.replication.core.state import CommitUnderWay, ReplicaState
from shardmq.replication.core.timing import CAMPAIGN_JITTER, CAMPAIGN_SECONDS, HELLO_SECONDS


class Follower:
    """What a replica does while another one leads, or nobody.

    Args:
        state: of the replica.
        register: the group's key.
        first_stream: number of the first stream; higher than all of the replica's processes of before.

    Attributes:
        heard_at: when the last beat was heard; a lease of its sender ends within CAMPAIGN_SECONDS.
        leader: the primary of the promised term; "" before it was heard.
        stands_alone: it takes no records, as an operator's unclean election of it is under way.
    """

    def __init__(self, state: ReplicaState, register: Register, first_stream: int) -> None:
        self._state = state
        self._register = register
        self.heard_at = state.now
        self.leader = ""
        self.stands_alone = False
        self._stream = first_stream
        self._is_streaming = False
        self._stream_serial = 0
        self._hello_at = float("-inf")
        self._acked = (-1, False)
        self._join_start = state.index
        self._has_all_ranges = False
        self._range_serial: tuple[int, Key | None] | None = None

    @property
    def wake(self) -> float:
        """When it wants to be called, in seconds on the replica's clock."""
        return self.heard_at + self._patience()

    def _patience(self) -> float:
        draw = crc32(f"{self._state.name} {self._state.promised}".encode()) % 1000
        return CAMPAIGN_SECONDS * (1 + CAMPAIGN_JITTER * draw / 1000)

    def reset(self) -> None:
        """Forget the primary of before: a new term, or a new role."""
        self.leader = ""
        self.leave_stream()
        if self._state.copied is not None:
            self._state.copied = BEGINNING

    def leave_stream(self) -> None:
        """Believe nothing that was sent so far, and ask to be brought up to date."""
        self._stream += 1
        self._is_streaming = False
        self._range_serial = None
        self._has_all_ranges = False
        self._hello_at = float("-inf")

    def filled(self) -> None:
        """Tell the primary at once that the disk is full: it would wait for this replica."""
        self.leave_stream()
        if self.leader:
            self._state.send(self.leader, Unable(self._state.promised))

    def promise(self, term: int) -> None:
        """Promise a term that was heard of, and give its primary time to be heard."""
        self.reset()
        self.heard_at = max(self.heard_at, self._state.now)
        self._state.promise(term)

    def lead_ended(self) -> None:
        """Begin anew after a term that this replica led."""
        self.reset()
        self.heard_at = self._state.now

    def refuse(self, sender: str, term: int) -> None:
        """Tell a replica of the term that is promised, where it believes in a lower one."""
        if term < self._state.promised:
            self._state.send(sender, Refused(self._state.promised))

    def accepts(self, sender: str, term: int) -> bool:
        """Promise the term of a message, or refuse it. Only a term that is on disk is acknowledged."""
        state = self._state
        if term < state.promised:
            state.send(sender, Refused(state.promised))
            return False
        if term > state.promised:
            self.promise(term)
        self.leader = sender
        return state.durable_promised >= term

    def beat(self, sender: str, beat: Beat) -> None:
        """Answer a beat: no campaign for a while."""
        state = self._state
        if not self.accepts(sender, beat.term):
            return
        if state.is_full:
            state.send(sender, Unable(beat.term))
            return
        if state.is_stalled:
            return
        self.heard_at = state.now
        state.send(sender, BeatAnswer(beat.term, beat.at))
        if self._is_streaming and beat.stream == self._stream:
            state.hear_clock(beat.clock)
            self._learn_released(beat.released)
        else:
            self._say_hello()

    def _say_hello(self) -> None:
        state = self._state
        if state.now - self._hello_at < HELLO_SECONDS or state.is_full or self.stands_alone:
            return
        self.leave_stream()
        self._hello_at = state.now
        state.send(
            self.leader,
            Hello(
                state.promised,
                self._stream,
                state.incarnation,
                state.index,
                state.released,
                state.history,
                state.touched.above(state.released),
                state.copied,
                state.leads,
            ),
        )

    def _learn_released(self, released: int) -> None:
        state = self._state
        state.released = max(state.released, min(released, state.index))
        self._complete_join()

    def _may_read_stream(self, message: Rejoin | Join | Range | Record) -> bool:
        return message.stream == self._stream and not self._state.is_full and not self.stands_alone

    def record(self, sender: str, record: Record) -> None:
        """Write the next record."""
        if not self.accepts(sender, record.term) or not self._may_read_stream(record) or not self._is_streaming:
            return
        state = self._state
        if record.index != state.index + 1 or record.term != state.term:
            self.leave_stream()  # the next beat finds no stream, and has it begun anew
            return
        state.hear_clock(record.clock)
        self._learn_released(record.released)
        state.append(record.edits)

    def rejoin(self, sender: str, rejoin: Rejoin) -> None:
        """Replace what was written above the common point by what the primary has."""
        if not self.accepts(sender, rejoin.term) or not self._may_read_stream(rejoin):
            return
        state = self._state
        state.hear_clock(rejoin.clock)
        state.index, state.term = rejoin.index, rejoin.last_term
        state.history, state.leads = rejoin.history, rejoin.leads
        state.released = max(state.released, min(rejoin.released, rejoin.index))
        state.touched.cut(rejoin.common)
        for row in rejoin.touched:
            state.touched.add(row, state.released)
        self._begin_stream(state.commit(rejoin.edits, rejoin.touched, cut=rejoin.common))

    def join(self, sender: str, join: Join) -> None:
        """Begin to take the whole store anew. Until that is done, the store is incomplete."""
        if not self.accepts(sender, join.term) or not self._may_read_stream(join):
            return
        state = self._state
        state.hear_clock(join.clock)
        state.index, state.term = join.index, join.last_term
        state.history, state.leads = join.history, join.leads
        state.incarnation = join.incarnation
        state.copied = BEGINNING
        state.released = 0
        state.touched.begin(join.index)
        self._join_start = join.index
        self._begin_stream(state.commit(cut=0))

    def _begin_stream(self, serial: int) -> None:
        self._is_streaming = True
        self._stream_serial = serial
        self._acked = (-1, False)

    def range(self, sender: str, message: Range) -> None:
        """Replace the rows of a range."""
        if not self.accepts(sender, message.term) or not self._may_read_stream(message):
            return
        if message.start != self._state.copied:
            self.leave_stream()  # rows between the two would be missed
            return
        if message.end is None:
            self._has_all_ranges = True
        else:
            self._state.copied = message.end
        serial = self._state.commit(message.edits, clear=(message.start, message.end))
        self._range_serial = (serial, message.end)
        self._complete_join()

    def _may_complete(self) -> bool:
        """Whether the store is whole, and holds nothing of which it could not say what to take back.

        Ranges bring values of records before the join began, whose keys this replica does not know. Once those
        records are released, none of them is ever taken back.
        """
        return self._has_all_ranges and self._state.released >= self._join_start

    def _complete_join(self) -> None:
        if self._state.copied is not None and self._is_streaming and self._may_complete():
            self._state.copied = None
            self._state.commit()

    def durable(self, commit: CommitUnderWay) -> None:
        """Acknowledge what is on disk."""
        state = self._state
        if not self.leader or state.durable_promised < state.promised:
            return
        if state.is_full:
            state.send(self.leader, Unable(state.promised))
            return
        if not self._is_streaming:
            if self._hello_at == float("-inf") and not state.is_stalled:
                self._say_hello()
            return
        if not self.is_of_stream(commit):
            return
        if self._range_serial is not None and commit.serial >= self._range_serial[0]:
            state.send(self.leader, RangeAck(state.promised, self._stream, self._range_serial[1]))
            self._range_serial = None
        if (commit.index, commit.is_complete) != self._acked:
            self._acked = (commit.index, commit.is_complete)
            state.send(self.leader, Ack(state.promised, self._stream, commit.index, commit.is_complete))

    def is_of_stream(self, commit: CommitUnderWay) -> bool:
        """Whether a commit is of this stream: what was written before it is not what it speaks of."""
        return commit.serial >= self._stream_serial

    def link_lost(self, peer: str) -> None:
        """Ask anew to be brought up to date, once the primary is heard again."""
        if peer == self.leader:
            self.leave_stream()

    def tick(self) -> None:
        """Campaign, where the primary has been silent for long enough."""
        if self._register.must_read:
            self._register.read()
        elif self._state.now - self.heard_at >= self._patience():
            self.campaign()

    def campaign(self) -> None:
        """Ask to be elected, where that is this replica's to ask."""
        group = self._register.group
        if group is None or self._register.is_busy or self._state.is_writing or self._state.is_full:
            return
        if self.may_campaign(group):
            self._register.swap(group.elected(self._state.name, self._state.promised))

    def may_campaign(self, group: Group) -> bool:
        """Whether the store holds all that was released."""
        state = self._state
        return self._is_in_sync(group) and state.copied is None and state.incarnation == group.incarnation

    def _is_in_sync(self, group: Group) -> bool:
        return self._state.name in group.in_sync
