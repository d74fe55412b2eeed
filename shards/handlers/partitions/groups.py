"""What is asked of groups: members come and go, offsets are committed and reset, cursors looked at and forgotten."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from shardmq.bus.listener import Responder
from shardmq.bus.messages.groups import (
    CommitOffset,
    DropGroup,
    GroupReading,
    GroupState,
    InspectPartition,
    PartitionState,
    ResetGroup,
    StageOffset,
)
from shardmq.bus.messages.shard import Cancelled
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed, RequestError, Unavailable
from shardmq.limits import NAME_BYTES_MAX
from shardmq.shards.consumers.consumer import Consumer
from shardmq.shards.consumers.readers import Readers
from shardmq.shards.handlers.delays import DelayedMessages
from shardmq.shards.handlers.partitions.group_settings import check_settings, settings_of
from shardmq.shards.handlers.partitions.staged_offsets import StagedOffsets
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.state.hosted_queue import HostedQueue
from shardmq.shards.state.shard import ShardState
from shardmq.shards.storage.entries import CursorRow
from shardmq.shards.topics.cursor import offset_at, out_of_range
from shardmq.shards.topics.group_cursor import GroupCursor
from shardmq.shards.topics.group_letters import new_producer

GROUPS_MAX: Final = 10_000
"""Groups with a cursor in one partition: some megabytes of memory."""


class Groups:
    """The groups that read partitions of this shard.

    Args:
        state: the partitions.
        delays: knows how many messages wait for a time.

    Attributes:
        staged: offsets that transactions are to commit.
        replaced: called when a group has got another cursor in place of a damaged one; `Decisions` sets it.
    """

    def __init__(self, state: ShardState, delays: DelayedMessages) -> None:
        self._state = state
        self._delays = delays
        self.staged = StagedOffsets(state)
        self.replaced: Callable[[], None] = lambda: None
        self.handlers: dict[type, Callable[[Any, Any], None]] = {
            CommitOffset: partial(self._carry_out, self._commit),
            ResetGroup: partial(self._carry_out, self._reset),
            DropGroup: partial(self._carry_out, self._drop),
            InspectPartition: partial(self._carry_out, self._inspect),
        }

    def load(self, hosted: HostedQueue, stored: Mapping[str, CursorRow]) -> None:
        """At start: take over the cursors of a partition's groups."""
        if hosted.readers is None:
            return
        for name, row in stored.items():
            group = self._add(hosted.readers, name, row)
            self._expect(group)

    def attach(self, hosted: HostedQueue, consumer: Consumer, message: GroupReading) -> int:
        """Make a consumer one of a group, which it may be the first of; returns what the group reads next.

        The owner of an ordered group before it is cancelled.

        Raises:
            RequestError: the queue is no stream, the group is of another kind, or the consumer's epoch is too old.
        """
        readers = _readers(hosted)
        _check_name(message.name)
        self._check_undecided(hosted, message.name)
        settings = settings_of(message)
        group = self._found(hosted, message.name)
        if group is not None:
            check_settings(_title(hosted), group, settings)
            if group.offset > group.partition.next:
                raise PreconditionFailed(
                    f"group '{group.name}' is at offset {group.offset} of {_title(hosted)}, which ends at "
                    f"{group.partition.next}: it lost messages that the group had read; reset the group"
                )
            self._fence(hosted, readers, group, message)
        else:
            _check_room(hosted, readers)
            offset = offset_at(readers.partition, message.begin)
            row = CursorRow(offset, 0, offset, partitions_at_begin=message.partitions_at_begin)
            group = self._add(readers, message.name, row)
        is_new = group.settings is None or message.epoch > group.epoch
        if group.settings is None:
            group.settings = settings
            group.letters = new_producer() if settings.dead_letter_exchange is not None else 0
            group.open().learn(settings)
        group.epoch = max(group.epoch, message.epoch)
        if is_new:
            group.keep()
        readers.attach(consumer, group, message.member)
        return group.offset

    def delay(self, consumer: Consumer, ranges: Ranges, due_ms: int) -> None:
        """Make messages that a consumer of a group holds ready again later."""
        readers = self._state.queues[consumer.queue.id].readers
        assert readers is not None
        group = readers.group_of(consumer)
        group.open().delay(ranges, due_ms)
        self._expect(group)

    def _found(self, hosted: HostedQueue, name: str, begins: bool = True) -> GroupCursor | None:
        """Return a group's cursor; None where it has none, and may get one.

        Raises:
            Unavailable: it is damaged, or may be.
        """
        group = _readers(hosted).groups.get(name)
        text = self.why_out(hosted, name, begins)
        if text is not None:
            raise Unavailable(text)
        return group

    def why_out(self, hosted: HostedQueue, name: str, begins: bool = True) -> str | None:
        """Return why a group is out of service in a partition; None where it is not."""
        if name in _readers(hosted).groups:
            return None
        return self._state.quarantine.group_text(hosted.queue.id, name, begins)

    def _add(self, readers: Readers, name: str, row: CursorRow) -> GroupCursor:
        group = readers.groups[name] = GroupCursor(readers.partition, self._state.buffer, name, row)
        return group

    def _fence(self, hosted: HostedQueue, readers: Readers, group: GroupCursor, message: GroupReading) -> None:
        """Have an older owner of an ordered group give way.

        Raises:
            PreconditionFailed: it is the newcomer who is older.
        """
        if message.is_shared:
            return
        if message.epoch < group.epoch:
            raise PreconditionFailed(
                f"{_title(hosted)} was given to a newer member of group '{group.name}': epoch {message.epoch} is older "
                f"than {group.epoch}; join the group again"
            )
        members = readers.members(group)
        if members is None:
            return
        if message.epoch == group.epoch and message.member != members.owner:
            raise PreconditionFailed(
                f"member '{members.owner}' of group '{group.name}' has {_title(hosted)} in epoch {group.epoch}; "
                "join the group again"
            )
        text = f"{_title(hosted)} was given to member '{message.member}' of group '{group.name}'"
        for consumer in list(members.names):
            self._end(readers, consumer, text)

    def _end(self, readers: Readers, consumer: Consumer, text: str) -> None:
        """End a consumer of a group: what it holds returns, and what it settles later is ignored."""
        del self._state.peers[consumer.peer].consumers[consumer.number]
        if consumer.timeouts is not None:
            consumer.timeouts.close()
        readers.leave(consumer)
        if consumer.held:
            consumer.requeue_unhandled(list(consumer.held))
        readers.detach(consumer)
        consumer.peer.post(Cancelled(consumer.number, text))

    def _carry_out(self, act: Callable[[HostedQueue, Readers, Any], Any], responder: Responder[Any], ask: Any) -> None:
        hosted = self._state.found(responder, ask.queue)
        if hosted is None:
            return
        try:
            self._state.catch_up(hosted)
            answer = act(hosted, _readers(hosted), ask)
        except RequestError as refusal:
            responder.refuse(refusal.code, refusal.text)
            return
        self._state.active[hosted.queue.id] = hosted
        responder.answer(answer)

    def _commit(self, hosted: HostedQueue, _readers: Readers, message: CommitOffset) -> int:
        self.check_commit(hosted, message)
        self.commit(hosted, message.group, message.offset, message.epoch)
        return message.offset

    def check_commit(self, hosted: HostedQueue, message: CommitOffset | StageOffset) -> None:
        """Make sure that a member, or nobody's program, may commit an offset.

        Raises:
            RequestError: it may not.
        """
        readers = _readers(hosted)
        partition = readers.partition
        _check_name(message.group)
        if not partition.first <= message.offset <= partition.next:
            raise out_of_range(partition, message.offset)
        group = self._found(hosted, message.group)
        if group is None:
            _check_room(hosted, readers)
            return
        members = readers.members(group)
        if members is not None and not message.epoch:
            raise PreconditionFailed(
                f"group '{group.name}' has {len(members.names)} consumers of {_title(hosted)}: commit as one of them, "
                "or end them"
            )
        if message.epoch and message.epoch < group.epoch:
            raise PreconditionFailed(
                f"{_title(hosted)} was given to a newer member of group '{group.name}': epoch {message.epoch} is older "
                f"than {group.epoch}; nothing was committed"
            )
        if message.offset < group.offset:
            raise PreconditionFailed(
                f"group '{group.name}' is at offset {group.offset} of {_title(hosted)} and does not go back to "
                f"{message.offset} by a commit; reset it"
            )

    def epoch_of(self, hosted: HostedQueue, name: str) -> int:
        """Return a group's newest epoch in a partition; 0 where it has not read it."""
        group = _readers(hosted).groups.get(name)
        return 0 if group is None else group.epoch

    def commit(self, hosted: HostedQueue, name: str, offset: int, epoch: int) -> None:
        """Acknowledge all messages below an offset, unless the group is further."""
        readers = _readers(hosted)
        group = readers.groups.get(name)
        if group is None:
            self._add(readers, name, CursorRow(offset, epoch, offset)).keep()
        elif group.offset < offset <= readers.partition.next:
            (readers.members(group) or group).commit(offset)

    def carry_out(self, hosted: HostedQueue, name: str, offset: int, epoch: int) -> None:
        """Commit an offset as a transaction has decided, unless the group got another cursor since: that is newer."""
        group = _readers(hosted).groups.get(name)
        if group is None or group.epoch <= epoch:
            self.commit(hosted, name, offset, epoch)

    def _reset(self, hosted: HostedQueue, readers: Readers, message: ResetGroup) -> tuple[int, int]:
        partition, reading = readers.partition, message.reading
        if reading.begin == "offset" and not partition.first <= reading.number <= partition.next:
            raise out_of_range(partition, reading.number)
        new = offset_at(partition, reading)
        if self._state.quarantine.has_group(hosted.queue.id, message.group) and (message.epoch or message.dry_run):
            self._replace_damaged(hosted, readers, message, new)
            return new, new
        group = self._found(hosted, message.group)
        if group is None and not message.make:
            raise _missing(hosted, message.group)
        self._check_undecided(hosted, message.group)  # by the dry run, too: it says that all partitions can be reset
        if group is None:
            _check_name(message.group)
            _check_room(hosted, readers)
            if not message.dry_run:
                epoch = self.staged.epoch_of(hosted.queue.id, message.group) + 1
                self._add(readers, message.group, CursorRow(new, epoch, new)).keep()
            return new, new
        old = group.offset
        if not message.dry_run:
            self._reset_all(hosted, readers, group, new)
        return old, new

    def _replace_damaged(self, hosted: HostedQueue, readers: Readers, message: ResetGroup, offset: int) -> None:
        """Give a group another cursor in place of its damaged one.

        Which epoch that had is not known any more. The new one is higher than those of all members, as the coordinator
        gave it, and of all that is staged: a transaction of before commits no offset. One that is committed and waited
        for the damaged cursor is carried out then, as if the group had been reset behind it.
        """
        queue, name = hosted.queue.id, message.group
        if self.staged.is_deciding(queue, name, or_carried_out=False):
            raise Unavailable(
                f"a transaction that commits an offset of group '{name}' in {_title(hosted)} is being decided; reset "
                "the group in a moment"
            )
        if message.dry_run:
            return
        epoch = max(message.epoch, self.staged.epoch_of(queue, name) + 1)
        group = self._add(readers, name, CursorRow(offset, epoch, offset))
        self._state.buffer.replace_damaged(queue, name, group)
        self._state.quarantine.put_back(queue, name)
        self.replaced()

    def _reset_all(self, hosted: HostedQueue, readers: Readers, group: GroupCursor, offset: int) -> None:
        """Have a group go on elsewhere, whatever its members have.

        Its epoch is over, as a transaction might commit what was read before, and would skip what is to be read again.
        So the owner of an ordered group is fenced, and the coordinator gives the partition out anew.
        """
        members = readers.members(group)
        group.epoch += 1
        if members is not None and group.settings is not None and not group.settings.is_shared:
            for consumer in list(members.names):
                self._end(readers, consumer, f"group '{group.name}' was reset in {_title(hosted)}")
            members = None
        (members or group).reset(offset)

    def _check_undecided(self, hosted: HostedQueue, group: str) -> None:
        """Make sure that no transaction is about to commit an offset of a group.

        Raises:
            Unavailable: there is one.
        """
        if self.staged.is_deciding(hosted.queue.id, group):
            raise Unavailable(
                f"a transaction that commits an offset of group '{group}' in {_title(hosted)} is being decided; try "
                "again in a moment"
            )

    def _drop(self, hosted: HostedQueue, readers: Readers, message: DropGroup) -> bool:
        group = self._found(hosted, message.group, begins=False)
        members = readers.members(group) if group is not None else None
        if group is not None and members is not None:
            raise PreconditionFailed(
                f"group '{group.name}' has {len(members.names)} consumers of {_title(hosted)}: end them, and delete it "
                "then"
            )
        self._check_undecided(hosted, message.group)
        self.staged.drop(hosted.queue.id, message.group)  # also where the first offset is still to be committed
        if group is None:
            return False
        del readers.groups[message.group]
        group.lose()
        return True

    def _inspect(self, hosted: HostedQueue, readers: Readers, message: InspectPartition) -> PartitionState:
        partition, found = readers.partition, readers.groups
        damaged = self._state.quarantine.groups.get(hosted.queue.id, {})
        if message.group is not None:
            if not message.with_damaged:
                self._found(hosted, message.group, begins=False)
            self._state.buffer.demand()  # who asks about one group counts on what its members acknowledged
        names = {*found, *damaged} if message.group is None else {message.group}
        groups = []
        for name in sorted(names.difference(damaged).intersection(found)):
            members = readers.members(found[name])
            groups.append(members.state() if members is not None else found[name].state())
        groups += [GroupState(name, None, 0, 0, is_damaged=True) for name in sorted(names.intersection(damaged))]
        oldest_ms, newest_ms = partition.times()
        return PartitionState(partition.first, partition.next, partition.bytes, oldest_ms, newest_ms, groups)

    def _expect(self, group: GroupCursor) -> None:
        """Look at a group when its first delay is over."""
        deliveries = group.deliveries
        if deliveries is None or not deliveries.delays:
            return
        due_ms = deliveries.delays[0][0]
        if deliveries.expected_ms is None or due_ms < deliveries.expected_ms:
            deliveries.expected_ms = due_ms
            self._delays.others += 1
            self._state.schedule.at(due_ms, partial(self._look, group.partition.id, group.name, due_ms))

    def _look(self, number: int, name: str, due_ms: int) -> None:
        self._delays.others -= 1
        hosted = self._state.queues.get(number)
        group = hosted.readers.groups.get(name) if hosted is not None and hosted.readers is not None else None
        deliveries = group.deliveries if group is not None else None
        if hosted is None or group is None or deliveries is None or deliveries.expected_ms != due_ms:
            return
        deliveries.expected_ms = None
        deliveries.end_delays(self._state.schedule.now_ms)
        self._expect(group)
        group.close()
        self._state.active[number] = hosted


def _title(hosted: HostedQueue) -> str:
    """As errors call a partition."""
    return f"stream '{hosted.queue.declared.name}' in vhost '{hosted.queue.declared.vhost}'"


def _readers(hosted: HostedQueue) -> Readers:
    if hosted.readers is None:
        raise PreconditionFailed(f"{hosted.title} is no stream, and has no groups; declare it with x-queue-type=stream")
    return hosted.readers


def _check_name(name: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 0 < size <= NAME_BYTES_MAX:
        raise InvalidRequest(f"a group's name has 1 to {NAME_BYTES_MAX} bytes, and '{name[:32]}' has {size}")


def _check_room(hosted: HostedQueue, readers: Readers) -> None:
    if len(readers.groups) >= GROUPS_MAX:
        raise PreconditionFailed(f"{_title(hosted)} has {GROUPS_MAX} groups, the most there may be; delete some")


def _missing(hosted: HostedQueue, name: str) -> NotFound:
    return NotFound(f"no group '{name}' has read {_title(hosted)}")
