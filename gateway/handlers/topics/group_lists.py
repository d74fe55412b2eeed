"""The list of consumer groups: a row for each, over all partitions of its topic."""

from collections.abc import Sequence
from typing import Any

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.messages.groups import GroupState, InspectPartition, PartitionState
from shardmq.gateway.handlers.topics.partitions import lag_of, topics_of
from shardmq.gateway.handlers.topics.questions import look_at_all
from shardmq.gateway.session.client import Client

Found = tuple[int, PartitionState, GroupState]
"""What a partition knows of a group: its number, itself, and the group there."""


def list_groups(client: Client, reply: Reply) -> None:
    """Answer with a row for each group that a client may see: whether somebody consumes, how far it is behind.

    A partition that is out of service, or whose shard does not answer, is in none of the sums, and is named.
    """
    topics = topics_of(client)
    places = [(number, queue) for _, _, queues in topics for number, queue in enumerate(queues)]

    def join(states: list[PartitionState | None]) -> None:
        left = iter(states)
        rows = []
        for vhost, topic, queues in topics:
            groups: dict[str, list[Found]] = {}
            unknown = []
            for number, state in enumerate([next(left) for _ in queues]):
                if state is None:
                    unknown.append(number)
                    continue
                for group in state.groups:
                    groups.setdefault(group.name, []).append((number, state, group))
            rows += [group_row(vhost, topic, len(queues), groups[name], unknown) for name in sorted(groups)]
        reply(rows)

    look_at_all(client, places, lambda place: InspectPartition(place[1].id), join)


def group_row(
    vhost: str, topic: str, partitions: int, everywhere: Sequence[Found], unknown: Sequence[int]
) -> dict[str, Any]:
    """The row of a group.

    Args:
        vhost: the topic's.
        topic: what it reads.
        partitions: how many the topic has.
        everywhere: what is known of the group, at least of one partition.
        unknown: partitions of which nothing is known.
    """
    found = [(state, group) for _, state, group in everywhere if not group.is_damaged]
    kinds = {group.is_shared for _, group in found} - {None}
    return {
        "topic": topic,
        "vhost": vhost,
        "group": everywhere[0][2].name,
        "type": "" if not kinds else "shared" if kinds == {True} else "ordered",
        "partitions": partitions,
        "read": len(found),
        "consumers": sum(group.consumers for _, group in found),
        "members": len({group.member for _, group in found if group.member}),
        "unacked": sum(group.unacked for _, group in found),
        "lag": sum(lag_of(state, group) for state, group in found),
        "damaged": [number for number, _, group in everywhere if group.is_damaged],
        "unknown": list(unknown),
    }
