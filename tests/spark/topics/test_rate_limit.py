"""A micro-batch has as many messages as its limit says, from each partition by what it has waiting."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.spark.topics.offsets import Places, TopicPartition
from shardmq.spark.topics.rate_limit import limited, rows_of_bytes


def places(*offsets: int) -> Places:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


def test_shares_follow_the_backlogs() -> None:
    assert limited(places(0, 0, 0), places(100, 200, 700), 100) == places(10, 20, 70)
    assert limited(places(50, 100), places(60, 110), 100) == places(60, 110)


def test_a_partition_that_is_new_begins_at_0() -> None:
    assert limited(places(100), places(200, 100), 100) == places(150, 50)


def test_a_small_backlog_gets_on_beside_a_large_one() -> None:
    assert limited(places(0, 0), places(1_000_000, 1), 10) == places(9, 1)


def test_partitions_that_go_back_keep_their_place() -> None:
    assert limited(places(500, 0), places(0, 100), 10) == places(0, 10)


BACKLOGS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1, max_size=12)


@given(BACKLOGS, st.integers(1, 10**7))
def test_the_shares_are_the_limit_and_none_is_left_without(backlogs: list[tuple[int, int]], rows: int) -> None:
    start = places(*[begin for begin, _ in backlogs])
    end = places(*[begin + size for begin, size in backlogs])
    shares = [place - start[partition] for partition, place in limited(start, end, rows).items()]
    waiting = [size for _, size in backlogs]
    assert all(0 <= share <= size for share, size in zip(shares, waiting, strict=True))
    assert all(share > 0 for share, size in zip(shares, waiting, strict=True) if size)
    partitions = sum(size > 0 for size in waiting)
    assert sum(shares) == min(sum(waiting), max(rows, partitions))


def test_bytes_are_counted_by_the_average_message_of_each_partition() -> None:
    sizes = {TopicPartition("t", 0): 100.0, TopicPartition("t", 1): 10_000.0}
    assert rows_of_bytes(places(0, 0), places(1000, 100), sizes, 2_000_000) == 1100
    assert rows_of_bytes(places(0, 0), places(1000, 100), sizes, 550_000) == 550
    assert rows_of_bytes(places(0, 0), places(1000, 100), sizes, 1) == 1
    assert rows_of_bytes(places(0, 100), places(1000, 100), sizes, 50_000) == 500
