"""How a primary brings a follower up to its store: by touched keys, or by key ranges.

    Hello ─► the histories have a common point, and the keys touched since are known on both sides?
               yes ─► read those keys as of now ─► Rejoin: their values, in one commit
               no  ─► Join ─► read a range, send it, wait for its acknowledgement, rest, … ─► the last range

Values are as of a place in the stream. A read is answered later, so the follower's records wait behind the read.
"""

from collections.abc import Iterable

import msgspec

from shardmq.replication.core.effects import ReadKeys, ReadRange, Send
from shardmq.replication.core.events import KeysRead, RangeRead, ReadFailed
from shardmq.replication.core.messages import Hello, Join, Message, Range, RangeAck, Record, Rejoin
from shardmq.replication.core.note import BEGINNING, Key, Log, common_point
from shardmq.replication.core.state import ReplicaState
from shardmq.replication.core.timing import RANGE_BYTES, REST_SECONDS_MAX, REST_SHARE


class Peer:
    """What a primary knows of one of its followers or learners.

    Attributes:
        stream: that the follower opened; 0 for none.
        acked: index up to which all is on its disk, in this stream.
        is_complete: whether it holds all.
        answered: when the last beat was sent that it answered, in seconds on the primary's clock.
        must_leave: it may not stay in sync: it has to join, or its disk is full.
        must_join: it lacks more than one message may have.
        waiting: records that wait behind a read; None where none is under way.
        request: the read.
        rejoin: without the edits that are being read.
        cursor: where its join is; None where none is under way, or its last range was sent.
        copied: bytes of the ranges of its join that were sent; None where none is, or it goes on from one of before.
        step: when its join's last step began, in seconds on the primary's clock, and the index of then.
        rests_until: when the next one may; None where it does not wait for that.
    """

    __slots__ = (
        "acked",
        "answered",
        "copied",
        "cursor",
        "is_complete",
        "must_join",
        "must_leave",
        "name",
        "rejoin",
        "request",
        "rests_until",
        "step",
        "stream",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = float("-inf")
        self.must_leave = self.must_join = False
        self.leave_stream()

    def leave_stream(self) -> None:
        """Send no records before the follower has said anew what it holds."""
        self.stream = 0
        self.acked = 0
        self.is_complete = False
        self.waiting: list[Record] | None = None
        self.request = 0
        self.rejoin: Rejoin | None = None
        self.cursor: Key | None = None
        self.copied: int | None = None
        self.step = 0.0, 0
        self.rests_until: float | None = None


class CatchUp:
    """Brings followers up to the primary's store.

    Args:
        state: of the primary.
    """

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self._requests: dict[int, Peer] = {}
        self._last_request = 0

    def hello(self, peer: Peer, hello: Hello, is_in_sync: bool) -> None:
        """Find out what a follower lacks, and begin to send it."""
        peer.leave_stream()
        peer.must_leave = False
        common = None if peer.must_join else self._common(hello)
        if common is not None and self._rejoin(peer, hello, common):
            return
        if is_in_sync:
            peer.must_leave = True  # it lacks what it had; it joins once it is out of the set
            return
        self._join(peer, hello.term, hello.stream)

    def _join(self, peer: Peer, term: int, stream: int) -> None:
        state = self._state
        peer.must_join = False
        peer.stream = stream
        peer.cursor = BEGINNING
        peer.copied = 0
        joined = state.incarnation, state.index, state.term, state.clock(), state.history, state.leads
        state.send(peer.name, Join(term, stream, *joined))
        self._read_range(peer)

    def _common(self, hello: Hello) -> int | None:
        """Return the common point, where touched keys lead from there to here."""
        state = self._state
        if hello.incarnation != state.incarnation or hello.copied == BEGINNING:
            return None
        common = common_point(state.log, Log(hello.history, hello.index, hello.leads))
        if common is None or common < state.touched.floor or common < hello.released:
            return None
        return common

    def keys_to_fetch(self, hello: Hello, common: int) -> dict[Key, None]:
        """Return the keys that differ: those of the follower's records that nobody else has, and of those it lacks."""
        rows = [row for row in hello.touched if row[0] > common]
        return dict.fromkeys(key for _, keys in (*rows, *self._state.touched.above(common)) for key in keys)

    def _rejoin(self, peer: Peer, hello: Hello, common: int) -> bool:
        state = self._state
        keys = self.keys_to_fetch(hello, common)
        if len(keys) > self._state.touched.keys_max:
            return False
        peer.stream = hello.stream
        peer.cursor = hello.copied
        peer.rejoin = Rejoin(
            hello.term,
            hello.stream,
            common,
            state.index,
            state.term,
            state.released,
            state.clock(),
            state.history,
            (),
            state.touched.above(common),
            state.leads,
        )
        request = self._begin_read(peer)
        state.effects.append(ReadKeys(request, tuple(sorted(keys))))
        return True

    def _begin_read(self, peer: Peer) -> int:
        self._last_request += 1
        peer.request = self._last_request
        peer.waiting = []
        self._requests[peer.request] = peer
        return peer.request

    def _end_read(self, request: int) -> Peer | None:
        peer = self._requests.pop(request, None)
        return peer if peer is not None and peer.request == request else None

    def keys_read(self, event: KeysRead) -> None:
        """Send what a follower lacks."""
        peer = self._end_read(event.request)
        if peer is None or peer.rejoin is None:
            return
        rejoin, peer.rejoin = peer.rejoin, None
        self._send_behind_read(peer, msgspec.structs.replace(rejoin, edits=event.edits))
        if peer.cursor is not None:
            self._read_range(peer)

    def _read_range(self, peer: Peer) -> None:
        assert peer.cursor is not None
        peer.rests_until = None
        peer.step = self._state.now, self._state.index
        request = self._begin_read(peer)
        self._state.effects.append(ReadRange(request, peer.cursor, RANGE_BYTES))

    def range_read(self, event: RangeRead, term: int) -> None:
        """Send a range of a join."""
        peer = self._end_read(event.request)
        if peer is None or peer.cursor is None:
            return
        start, peer.cursor = peer.cursor, event.end
        if peer.copied is not None:
            peer.copied += event.bytes
        self._send_behind_read(peer, Range(term, peer.stream, start, event.end, event.edits))

    def read_failed(self, event: ReadFailed) -> None:
        """Have a follower ask anew, later; where it lacks too much for one message, have it join."""
        peer = self._end_read(event.request)
        if peer is None:
            return
        rejoin = peer.rejoin
        peer.leave_stream()
        if rejoin is not None and event.is_too_much:
            peer.must_join = True

    def _send_behind_read(self, peer: Peer, message: Message) -> None:
        effects = self._state.effects
        effects.append(Send(peer.name, message))
        effects.extend(Send(peer.name, record) for record in peer.waiting or ())
        peer.waiting = None
        peer.request = 0

    def range_ack(self, peer: Peer, ack: RangeAck) -> None:
        """Go on with a join: at once, or where others publish meanwhile, after a rest."""
        if peer.cursor is None or peer.waiting is not None or peer.rests_until is not None or ack.end != peer.cursor:
            return
        now, (began_at, index) = self._state.now, peer.step
        if self._state.index == index:
            self._read_range(peer)
        else:
            peer.rests_until = now + min(REST_SECONDS_MAX, (now - began_at) * REST_SHARE)

    def tick(self, peers: Iterable[Peer]) -> None:
        """Go on with joins that have rested."""
        for peer in peers:
            if peer.rests_until is not None and peer.rests_until <= self._state.now:
                self._read_range(peer)
