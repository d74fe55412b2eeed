"""Requests about the offsets of groups, as values."""

from collections.abc import Iterable, Mapping
from typing import Any

from shardmq.client.api.results import converted
from shardmq.client.api.topics import Start, place_of
from shardmq.client.core.requests.offsets import PARTITION_MAX
from shardmq.client.core.requests.request import Request, nothing
from shardmq.client.core.validation import check_name, check_number
from shardmq.protocol.native.operations.offsets import GroupCommit, GroupDelete, GroupOffsets, GroupReset

Moves = dict[int, tuple[int | None, int]]
"""By partition: where a group was, and where it goes on."""


def _check(topic: str, group: str) -> None:
    check_name("topic", topic)
    check_name("group", group)


def check_offsets(topic: str, group: str, offsets: Mapping[int, int]) -> None:
    """Raise where these cannot be a group's offsets, by partition."""
    _check(topic, group)
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a dict of partition to offset, not {offsets!r}")
    for partition, offset in offsets.items():
        check_number("a partition", partition, 0, PARTITION_MAX)
        check_number("an offset", offset, 0, 2**63 - 1)


def group_commit(topic: str, group: str, offsets: Mapping[int, int]) -> Request[None]:
    """Move a group's offsets on."""
    check_offsets(topic, group, offsets)
    what = f"committing offsets of group '{group}' of topic '{topic}'"
    return Request(what, nothing, GroupCommit(0, 0, topic, group, list(offsets.items())))


def group_offsets(topic: str, group: str, partitions: list[int] | None = None) -> Request[list[dict[str, Any]]]:
    """Ask where a group is, in some partitions or in all; brokers of earlier versions tell of all."""
    _check(topic, group)

    def shape(result: object) -> list[dict[str, Any]]:
        return converted(result, list[dict[str, Any]], "GroupOffsets")

    operation = GroupOffsets(0, 0, topic, group, partitions)
    return Request(f"asking for group '{group}' of topic '{topic}'", shape, operation)


def group_reset(
    topic: str, group: str, start: Start, partitions: Iterable[int] | None, dry_run: bool
) -> Request[Moves]:
    """Have a group go on elsewhere."""
    _check(topic, group)
    begin, number = place_of(start)
    numbers = None if partitions is None else list(partitions)
    for partition in numbers or ():
        check_number("a partition", partition, 0, PARTITION_MAX)

    def shape(result: object) -> Moves:
        moved = converted(result, list[tuple[int, int | None, int]], "GroupReset")
        return {partition: (old, new) for partition, old, new in moved}

    operation = GroupReset(0, 0, topic, group, begin, number, numbers, dry_run)
    return Request(f"resetting group '{group}' of topic '{topic}'", shape, operation)


def group_delete(topic: str, group: str) -> Request[None]:
    """Forget a group's offsets."""
    _check(topic, group)
    return Request(f"deleting group '{group}' of topic '{topic}'", nothing, GroupDelete(0, 0, topic, group))
