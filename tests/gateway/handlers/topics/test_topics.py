"""What there is of a topic, over all its partitions."""

from shardmq.bus.messages.groups import GroupState, PartitionState
from shardmq.gateway.handlers.topics.topics import COUNTS, group_rows, partition_row
from shardmq.topology.entities import Queue

QUEUE = Queue("/", "t-3", 9, 2)


def partition(first: int, next_offset: int, *groups: GroupState) -> PartitionState:
    return PartitionState(first, next_offset, 1000, 5, 6, list(groups))


def test_a_groups_lag_is_what_all_partitions_have_for_it() -> None:
    rows = group_rows(
        {
            0: partition(0, 100, GroupState("a", False, 40, 1, "m", 1, 7), GroupState("b", True, 90, 0, acked_above=4)),
            1: partition(50, 100, GroupState("a", None, 20, 0)),  # retention has dropped what it had not read
            2: partition(0, 9, GroupState("b", None, 0, 0, is_damaged=True)),
        }
    )
    assert rows == [
        {"group": "a", "type": "ordered", "partitions": 2, "consumers": 1, "unacked": 7, "lag": 110, "damaged": []},
        {"group": "b", "type": "shared", "partitions": 1, "consumers": 0, "unacked": 0, "lag": 6, "damaged": [2]},
    ]


def test_what_a_shard_that_is_away_knows_is_not_told() -> None:
    row = partition_row(3, QUEUE, None)
    assert row == {"partition": 3, "queue": "t-3", "shard": 2, **dict.fromkeys(COUNTS), "groups": None}
    assert partition_row(3, QUEUE, partition(10, 25))["messages"] == 15
