"""One replica of a group, without I/O."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from shardmq.replication.core import events, messages
from shardmq.replication.core.catch_up import Peer
from shardmq.replication.core.effects import CommandRefused, Effect, EtcdBehind, Rejected, UncleanElection
from shardmq.replication.core.follower import Follower
from shardmq.replication.core.group import Group
from shardmq.replication.core.primary import Primary
from shardmq.replication.core.register import Register
from shardmq.replication.core.state import ReplicaState, Stored
from shardmq.replication.core.timing import CAMPAIGN_SECONDS


class Replica:
    """One replica of a group.

    Args:
        name: of its host.
        stored: what its store says about itself.
        now: seconds on its clock, which goes on while the machine is suspended.
        first_stream: a number above all that processes of this replica have had before, as wall-clock nanoseconds.
        wall: seconds since 1970, from which the clock of a new group goes on, or of one that was away as a whole.
    """

    def __init__(self, name: str, stored: Stored, now: float, first_stream: int, wall: float = 0.0) -> None:
        self._state = ReplicaState(name, stored, now, first_stream, wall)
        self._register = Register(self._state)
        self._follower = Follower(self._state, self._register, first_stream)
        self._primary: Primary | None = None
        self._handed_over = 0
        self._drop = ""
        self._unclean: tuple[str, int] | None = None
        self._left = 0
        self._handlers = cast("dict[type, Callable[[Any], None]]", self._event_handlers())
        self._messages = cast("dict[type, Callable[[str, Any], None]]", self._message_handlers())

    def _event_handlers(self) -> dict[Any, Any]:
        return {
            events.Tick: self._tick,
            events.Received: self._received,
            events.LinkLost: self._link_lost,
            events.Durable: self._durable,
            events.KeysRead: self._keys_read,
            events.RangeRead: self._range_read,
            events.ReadFailed: self._read_failed,
            events.StoreFull: self._store_full,
            events.StoreFreed: self._store_freed,
            events.Leave: self._leave,
            events.GroupRead: self._group_read,
            events.GroupSeen: self._group_seen,
            events.ReadLost: self._read_lost,
            events.Swapped: self._swapped,
            events.SwapRefused: self._swap_refused,
            events.SwapLost: self._swap_lost,
            events.Propose: self._propose,
            events.Transfer: self._transfer,
            events.Move: self._move,
            events.ElectUnclean: self._elect_unclean,
        }

    def _message_handlers(self) -> dict[Any, Any]:
        follower = self._follower
        return {
            messages.Beat: follower.beat,
            messages.Rejoin: follower.rejoin,
            messages.Join: follower.join,
            messages.Range: follower.range,
            messages.Record: follower.record,
            messages.Refused: self._refused,
            messages.Handover: self._handover,
        }

    def step(self, now: float, event: events.Event) -> list[Effect]:
        """Take in what happened, and return what is to be done about it, in order.

        Args:
            now: seconds on the replica's clock, taken when the event was.
            event: what happened.
        """
        self._state.now = now
        effects: list[Effect] = []
        self._state.effects = effects
        self._handlers[type(event)](event)
        return effects

    def may_answer(self, now: float) -> bool:
        """Whether what rests on released records may be told.

        Ask with the time of now before each flush: between two steps the machine may have been frozen.
        """
        return self._primary is not None and self._primary.may_answer(now)

    @property
    def released(self) -> int:
        """Index up to which all is on the disks of the in-sync set, as far as this replica knows."""
        return self._state.released

    @property
    def index(self) -> int:
        """Index of the last record."""
        return self._state.index

    @property
    def takes_proposals(self) -> bool:
        """Whether it leads, and does not hand over."""
        return self._primary is not None and self._primary.is_active and not self._primary.changes.transfer_to

    @property
    def takes_publishes(self) -> bool:
        """Whether it takes proposals, and enough replicas are in sync for new things to be taken in."""
        return self.takes_proposals and self._primary is not None and not self._primary.has_too_few()

    @property
    def leads(self) -> int:
        """The term that this replica leads; 0 for none."""
        return self._primary.term if self._primary is not None else 0

    @property
    def peers(self) -> Mapping[str, Peer]:
        """What a primary knows of the other replicas; nothing where it does not lead."""
        return {} if self._primary is None else self._primary.peers

    @property
    def group(self) -> Group | None:
        """What is known of the group's key in etcd."""
        return self._register.group

    def clock(self, now: float) -> float:
        """Return the group's clock, which goes on from one primary to the next."""
        self._state.now = now
        return self._state.clock()

    @property
    def wake(self) -> float:
        """When the next Tick is due, in seconds on the replica's clock."""
        role = self._primary or self._follower
        return role.wake

    def _tick(self, _: events.Tick) -> None:
        if self._primary is not None:
            self._primary.tick()
        else:
            self._elect_unclean_if_due()
            self._follower.tick()

    def _received(self, event: events.Received) -> None:
        if not self.knows_group():
            return
        message = event.message
        if self._primary is not None:
            if message.term > self._primary.term:
                self._step_down()
            else:
                self._received_by_primary(self._primary, event.sender, message)
                return
        handler = self._messages.get(type(message))
        if handler is not None:
            handler(event.sender, message)

    def knows_group(self) -> bool:
        """Whether etcd was asked since the start: the promise on disk may be older, or lost with the disk."""
        return self._register.group is not None

    def _received_by_primary(self, primary: Primary, sender: str, message: messages.Message) -> None:
        match message:
            case messages.Ack():
                primary.ack(sender, message)
            case messages.BeatAnswer():
                primary.beat_answer(sender, message)
            case messages.Hello():
                primary.hello(sender, message)
            case messages.RangeAck():
                primary.range_ack(sender, message)
            case messages.Unable():
                primary.unable(sender)
            case messages.Handover():
                self._handover(sender, message)
            case _:
                self._follower.refuse(sender, message.term)

    def _refused(self, _: str, refused: messages.Refused) -> None:
        if refused.term > self._state.promised:
            self._follower.promise(refused.term)
            self._register.want_read()

    def _handover(self, _: str, handover: messages.Handover) -> None:
        """Lead without waiting for a lease to end: the sender ended it."""
        self._handed_over = handover.term
        self._drop = handover.drop
        if self._primary is None:
            self._register.want_read()
        elif self._primary.term == handover.term:
            self._primary.begin_at(self._state.now, self._drop)

    def _step_down(self, group: Group | None = None) -> None:
        if self._primary is not None:
            self._primary.step_down(group)
            self._left = self._primary.term
            self._primary = None
            self._follower.lead_ended()

    def _link_lost(self, event: events.LinkLost) -> None:
        role = self._primary or self._follower
        role.link_lost(event.peer)

    def _durable(self, event: events.Durable) -> None:
        commit = self._state.durable(event.serial)
        if self._primary is not None:
            self._primary.durable(commit)
        else:
            self._elect_unclean_if_due()
            self._follower.durable(commit)

    def _keys_read(self, event: events.KeysRead) -> None:
        if self._primary is not None:
            self._primary.catch_up.keys_read(event)

    def _range_read(self, event: events.RangeRead) -> None:
        if self._primary is not None:
            self._primary.catch_up.range_read(event, self._primary.term)

    def _read_failed(self, event: events.ReadFailed) -> None:
        if self._primary is not None:
            self._primary.catch_up.read_failed(event)

    def _store_full(self, _: events.StoreFull) -> None:
        self._state.is_full = True
        self._follower.filled()

    def _leave(self, _: events.Leave) -> None:
        """Be one whose disk is full, to the others. A primary goes on: it has to transfer."""
        if self._primary is None:
            self._store_full(events.StoreFull())

    def _store_freed(self, _: events.StoreFreed) -> None:
        self._state.is_full = False

    def _group_read(self, event: events.GroupRead) -> None:
        is_first = self._register.group is None
        self._register.was_read()
        is_news = self._register.learn(event.revision, event.group)
        if is_first:
            self._started(event.group)
        elif is_news:
            self._learned(event.group)
        elif self._primary is not None:
            self._primary.group_learned()

    def _group_seen(self, event: events.GroupSeen) -> None:
        if self._register.group is not None and self._register.learn(event.revision, event.group):
            self._learned(event.group)

    def _read_lost(self, _: events.ReadLost) -> None:
        self._register.read_lost()

    def _swapped(self, event: events.Swapped) -> None:
        asked = self._register.asked
        if self._register.swapped(event.revision) and asked is not None:
            self._learned(asked)

    def _swap_refused(self, event: events.SwapRefused) -> None:
        self._register.asked = None
        if self._register.learn(event.revision, event.group):
            self._learned(event.group)

    def _swap_lost(self, _: events.SwapLost) -> None:
        self._register.swap_lost()

    def _started(self, group: Group) -> None:
        """Take part, now that it is known which term etcd is at."""
        state = self._state
        self._left = group.term
        if group.term > state.promised:
            self._follower.reset()
            state.promise(group.term)
        elif group.term < state.promised:
            state.effects.append(EtcdBehind(group.term, state.promised))
        if self.is_first_of(group):
            self._begin_group(group)
        elif group.primary == state.name and state.has_led(group.term):
            self._follower.heard_at = float("-inf")
            self._follower.campaign()

    def is_first_of(self, group: Group) -> bool:
        """Whether the group is new: nobody ever led it, so that an empty store lacks nothing."""
        state = self._state
        is_empty = state.incarnation == "" and state.index == 0 and state.promised == 0
        return group.term == 0 and state.name in group.in_sync and is_empty

    def _begin_group(self, group: Group) -> None:
        """Be one of a new group's first replicas. There is no lease to be waited for."""
        state = self._state
        state.incarnation, state.copied = group.incarnation, None
        state.begin_clock()
        state.commit()
        self._follower.heard_at = float("-inf")

    def _learned(self, group: Group) -> None:
        self._end_unclean(group)
        if self._primary is not None:
            if group.term == self._primary.term:
                self._primary.group_learned()
                return
            self._step_down(group)
        state = self._state
        if group.term < state.promised:
            return
        if group.primary == state.name:
            self._lead(group)
        elif group.term > state.promised:
            self._follower.promise(group.term)

    def _lead(self, group: Group) -> None:
        state = self._state
        if self.is_over(group.term) or not self._follower.may_campaign(group):
            if group.term > state.promised:
                self._follower.promise(group.term)
            return
        quiet_until = self.quiet_until()
        self._follower.reset()
        state.go_on_with_clock()
        state.promise(group.term)
        self._primary = Primary(state, self._register, quiet_until)
        if self._handed_over == group.term:
            self._primary.begin_at(state.now, self._drop)

    def is_over(self, term: int) -> bool:
        """Whether this replica led a term before, or may have, in a process of before: it is not led twice.

        Other disks may have records of it that this one lost, and what ends with a term has ended.
        """
        return term == self._left or term <= self._state.term

    def quiet_until(self) -> float:
        """Return when the lease that this replica last granted has ended, whatever the rates of the clocks."""
        return self._follower.heard_at + CAMPAIGN_SECONDS

    def _propose(self, event: events.Propose) -> None:
        if self._primary is not None:
            self._primary.propose(event)
        else:
            group = self._register.group
            leader = group.primary if group is not None else "nobody known"
            reason = f"{self._state.name} does not lead; {leader} does"
            self._state.effects.append(Rejected(event.number, reason))

    def _transfer(self, event: events.Transfer) -> None:
        if self._primary is None or not self._primary.is_active:
            self._refuse_command("transfer")
        else:
            self._primary.changes.transfer(event.to)

    def _move(self, event: events.Move) -> None:
        if self._primary is None or not self._primary.is_active:
            self._refuse_command("move")
        else:
            self._primary.changes.move(event.source, event.target)

    def _refuse_command(self, what: str) -> None:
        reason = f"{self._state.name} does not lead its group, and cannot {what}; ask the primary"
        self._state.effects.append(CommandRefused(reason))

    def _elect_unclean(self, event: events.ElectUnclean) -> None:
        """Take the new incarnation: it is on disk before etcd is asked, as nobody leads a group of another one."""
        state, group = self._state, self._register.group
        may_not = group is None or state.copied is not None or self._unclean is not None or self._primary is not None
        if group is None or may_not or self._follower.may_campaign(group):
            reason = f"{state.name} cannot be elected unclean: it is in sync, or incomplete, or does not know its group"
            state.effects.append(CommandRefused(reason))
            return
        released = state.released if state.incarnation == group.incarnation else 0
        state.effects.append(UncleanElection(state.index, released, group.in_sync))
        state.incarnation = event.incarnation
        self._follower.stands_alone = True
        self._follower.leave_stream()
        self._unclean = (event.incarnation, state.commit())

    def _elect_unclean_if_due(self) -> None:
        """Ask to be elected until it is known how that ends. It takes no records meanwhile."""
        state, group = self._state, self._register.group
        if self._unclean is None or group is None or self._register.is_busy:
            return
        incarnation, serial = self._unclean
        if state.durable_serial < serial:
            return
        self._register.swap(group.elected_unclean(state.name, incarnation, state.promised))

    def _end_unclean(self, group: Group) -> None:
        """Follow again, or lead: the key has another value than when the operator looked at it."""
        if self._unclean is None:
            return
        if self._unclean[0] != group.incarnation:
            reason = f"{self._state.name} is not elected unclean: {group.primary} leads term {group.term} by now"
            self._state.effects.append(CommandRefused(reason))
        self._unclean = None
        self._follower.stands_alone = False
