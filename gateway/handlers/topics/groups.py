"""The offsets of consumer groups: committed, looked at, reset, forgotten. Each partition's shard keeps its own."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.groups import (
    CommitOffset,
    DropGroup,
    GroupState,
    InspectPartition,
    PartitionState,
    ResetGroup,
    StageOffset,
)
from shardmq.bus.messages.membership import TakeEpoch
from shardmq.bus.messages.streams import Reading
from shardmq.errors import InvalidRequest, NotFound, PreconditionFailed, RequestError
from shardmq.gateway.handlers.replies import from_all
from shardmq.gateway.handlers.topics.partitions import lag_of, no_partition, partition_id, partitions_read
from shardmq.gateway.handlers.topics.questions import Place, ask_all
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.client import Client
from shardmq.gateway.session.groups.unproven import UnprovenAcks
from shardmq.limits import OFFSETS_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS
from shardmq.protocol.native.operations.offsets import GroupCommit, GroupDelete, GroupOffsets, GroupReset
from shardmq.protocol.native.operations.transaction import TransactionOffsets
from shardmq.topology.commands import BeginTransaction
from shardmq.topology.entities import Queue, check_name


def group_commit(channel: Channel, operation: GroupCommit, reply: Reply) -> None:
    """Move a group's offsets on.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such topic, or partition.
        InvalidRequest: the group's name is not valid, or a partition is named twice.
    """
    client, group = channel.client, operation.group
    check_name("group", group)
    queues = partitions_read(client, operation.topic)
    offsets = dict(operation.offsets)
    if len(offsets) < len(operation.offsets):
        raise InvalidRequest(f"a commit of group '{group}' names a partition more than once; each has one offset")
    places = _places(client, operation.topic, queues, list(offsets))

    def question(place: Place) -> CommitOffset:
        number, queue = place
        return CommitOffset(queue.id, group, offsets[number], _epoch(channel, operation, number))

    ask_all(client, places, question, lambda _: reply(None), reply)


def group_offsets(channel: Channel, operation: GroupOffsets, reply: Reply) -> None:
    """Tell where a group is, in some partitions or in each, once what was acknowledged on this channel is on disk.

    Whether an ordered group's acks had an effect is told by its offsets; a shared group's may be anywhere above them.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such topic, or partition.
        PreconditionFailed: what was acknowledged for a shared group was not, as its shard was away.
        InvalidRequest: the group's name is not valid.
    """
    client, topic, group = channel.client, operation.topic, operation.group
    check_name("group", group)
    places = _chosen(client, topic, partitions_read(client, topic), operation.partitions)
    members = channel.consumers.groups
    shared = [] if members is None else members.of_shared(topic, group)
    acks = UnprovenAcks(shared, {queue.id for _, queue in places})
    if shared and operation.partitions is not None:
        provable = acks.queues
        places = [place for place in places if place[1].id in provable]

    def join(states: list[PartitionState]) -> None:
        if acks.are_lost:
            reply(_acks_lost(client, topic, group))
        else:
            reply(
                [
                    _row(number, state, _of(state, group)) | {"id": partition_id(client, queue)}
                    for (number, queue), state in zip(places, states, strict=True)
                ]
            )

    def refused(outcome: Outcome) -> None:
        acks.put_back()
        reply(outcome)

    ask_all(client, places, lambda place: InspectPartition(place[1].id, group), join, refused)


def group_reset(channel: Channel, operation: GroupReset, reply: Reply) -> None:
    """Have a group go on elsewhere.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such topic, partition or group.
        InvalidRequest: the group's name is not valid.
    """
    client, topic, group = channel.client, operation.topic, operation.group
    check_name("group", group)
    queues = partitions_read(client, topic)
    places = _chosen(client, topic, queues, operation.partitions)
    reading = Reading(operation.begin, operation.number, is_exact=True)
    known: dict[int, GroupState | None] = {}

    def looked(states: list[PartitionState]) -> None:
        known.update({number: _of(state, group) for number, state in enumerate(states)})
        if not any(known.values()):
            reply(_no_group(client, topic, group))
            return
        ask_all(client, places, partial(question, True, 0), tried, reply)

    def tried(moves: list[tuple[int, int]]) -> None:
        """Go on only where every partition has the place: one that has not would leave the group half reset."""
        if operation.dry_run:
            join(moves)
        elif any(was_damaged(number) for number, _ in places):
            client.state.coordinator.ask(TakeEpoch(), replace_damaged)
        else:
            go_on(0)

    def replace_damaged(epoch: Outcome) -> None:
        """Go on, also where the cursor is damaged, and its epoch lost."""
        if isinstance(epoch, RequestError):
            reply(epoch)
        else:
            go_on(epoch)

    def go_on(epoch: int) -> None:
        ask_all(client, places, partial(question, False, epoch), join, reply)

    def was_damaged(number: int) -> bool:
        state = known[number]
        return state is not None and state.is_damaged

    def question(dry_run: bool, epoch: int, place: Place) -> ResetGroup:
        return ResetGroup(place[1].id, group, reading, dry_run, make=True, epoch=epoch)

    def join(moves: list[tuple[int, int]]) -> None:
        reply(
            [
                (number, old if known[number] and not was_damaged(number) else None, new)
                for (number, _), (old, new) in zip(places, moves, strict=True)
            ]
        )

    look = partial(InspectPartition, group=group, with_damaged=True)
    ask_all(client, list(enumerate(queues)), lambda place: look(place[1].id), looked, reply)


def group_delete(channel: Channel, operation: GroupDelete, reply: Reply) -> None:
    """Forget a group's offsets.

    Raises:
        AccessRefused: not permitted.
        NotFound: no such topic, or group.
        PreconditionFailed: it has members.
        Unavailable: a transaction is being decided that commits an offset of it.
        InvalidRequest: the group's name is not valid.
    """
    client, topic, group = channel.client, operation.topic, operation.group
    check_name("group", group)
    places = list(enumerate(partitions_read(client, topic)))

    def looked(states: list[PartitionState]) -> None:
        found = [_of(state, group) for state in states]
        if not any(found):
            reply(_no_group(client, topic, group))
        elif count := sum(state.consumers for state in found if state is not None):
            text = f"group '{group}' of topic '{topic}' in vhost '{client.vhost}' has {count} consumers: end them first"
            reply(PreconditionFailed(text))
        else:
            ask_all(client, places, lambda place: DropGroup(place[1].id, group), lambda _: reply(None), reply)

    ask_all(client, places, lambda place: InspectPartition(place[1].id, group), looked, reply)


def transaction_offsets(channel: Channel, operation: TransactionOffsets, reply: Reply) -> None:
    """Stage the commit of a group's offsets.

    A transaction without a timeout of its own gets a short one: once it is prepared, nobody is given the partitions.

    Raises:
        AccessRefused: not permitted, or somebody else began the transaction.
        NotFound: no such topic, or partition.
        PreconditionFailed: the transaction is over, or never was; or no member on this channel has a partition.
        InvalidRequest: the group's name is not valid, or a partition is named twice.
        Unavailable: the transaction is not known here, and the coordinator is away.
    """
    client, group = channel.client, operation.group
    client.check_transaction(operation.number)
    check_name("group", group)
    queues = partitions_read(client, operation.topic)
    numbers = [number for number, _ in operation.offsets]
    offsets = dict(operation.offsets)
    if len(offsets) < len(numbers):
        raise InvalidRequest(f"a commit of group '{group}' names a partition more than once; each has one offset")
    places = _places(client, operation.topic, queues, numbers)
    sequences = {number: operation.sequence + place for place, number in enumerate(numbers)}
    epochs = {number: _epoch(channel, operation, number) if operation.is_member else 0 for number in numbers}
    lost = [number for number, epoch in epochs.items() if operation.is_member and not epoch]
    if lost:  # it is not taken for a program without members: what it has read may have been given to others since
        raise PreconditionFailed(
            f"no member of group '{group}' on this channel has partition {lost[0]} of topic '{operation.topic}' in "
            f"vhost '{client.vhost}'; abort transaction {operation.number}, its messages are read again"
        )

    def question(place: Place) -> StageOffset:
        number, queue = place
        sequence = sequences[number]
        transaction, attempt = operation.number, operation.attempt
        return StageOffset(transaction, attempt, sequence, queue.id, group, offsets[number], epochs[number])

    transaction = client.state.topology.transactions[operation.number]
    if transaction.timeout_ms < TRANSACTION_TIMEOUT_MS:
        ask_all(client, places, question, lambda _: reply(None), reply)
        return
    both = from_all(2, reply, lambda _: None)
    name, number = transaction.name, transaction.number
    client.perform(BeginTransaction(client.vhost, name, transaction.user, OFFSETS_TIMEOUT_MS, number), both)
    ask_all(client, places, question, lambda _: both(None), both)


def _epoch(channel: Channel, operation: GroupCommit | TransactionOffsets, number: int) -> int:
    """Return under which epoch a member on this channel has a partition; 0 where none does."""
    members = channel.consumers.groups
    epoch = None if members is None else members.epoch_of(operation.topic, operation.group, number)
    return epoch or 0


def _row(number: int, state: PartitionState, group: GroupState | None) -> dict[str, Any]:
    row = {
        "partition": number,
        "first": state.first,
        "end": state.next,
        "offset": None,
        "lag": None,
        "type": "",
        "epoch": 0,
        "member": "",
        "consumers": 0,
        "unacked": 0,
        "acked_above": 0,
        "delayed": 0,
        "dying": 0,
        "lost": 0,
    }
    if group is not None:
        row |= {
            "offset": group.offset,
            "lag": lag_of(state, group),
            "type": "" if group.is_shared is None else "shared" if group.is_shared else "ordered",
            "epoch": group.epoch,
            "member": group.member,
            "consumers": group.consumers,
            "unacked": group.unacked,
            "acked_above": group.acked_above,
            "delayed": group.delayed,
            "dying": group.dying,
            "lost": group.lost,
        }
    return row


def _of(state: PartitionState, group: str) -> GroupState | None:
    return next((each for each in state.groups if each.name == group), None)


def _no_group(client: Client, topic: str, group: str) -> NotFound:
    where = f"topic '{topic}' in vhost '{client.vhost}'"
    return NotFound(f"no group '{group}' of {where}: nobody has consumed or committed as that group")


def _acks_lost(client: Client, topic: str, group: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"acknowledgements of group '{group}' of topic '{topic}' in vhost '{client.vhost}' had no effect: a shard was "
        "away, or others have the messages; they come again"
    )


def _chosen(client: Client, topic: str, queues: Sequence[Queue], partitions: Sequence[int] | None) -> list[Place]:
    """The partitions with these numbers, each once and in order; all for None.

    Raises:
        NotFound: there is no such partition.
    """
    return _places(client, topic, queues, range(len(queues)) if partitions is None else sorted(set(partitions)))


def _places(client: Client, topic: str, queues: Sequence[Queue], numbers: Sequence[int]) -> list[Place]:
    """The partitions with these numbers.

    Raises:
        NotFound: there is no such partition.
    """
    for number in numbers:
        if number >= len(queues):
            raise no_partition(client, topic, number, len(queues))
    return [(number, queues[number]) for number in numbers]


REQUESTS: Final[dict[type[Any], Any]] = {
    GroupCommit: group_commit,
    GroupOffsets: group_offsets,
    GroupReset: group_reset,
    GroupDelete: group_delete,
    TransactionOffsets: transaction_offsets,
}
