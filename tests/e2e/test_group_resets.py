"""Groups that are sent elsewhere while their members hold messages."""

from collections.abc import Iterator

import pytest

import shardmq
from shardmq import errors

from .traffic import numbers, publish_all, until

PARTITIONS, EACH = 4, 50


@pytest.fixture
def topic(channel: shardmq.Channel) -> Iterator[str]:
    channel.topic_declare("again", PARTITIONS)
    for partition in range(PARTITIONS):
        publish_all(channel, f"again-{partition}", numbers(0, EACH))
    yield "again"
    channel.topic_delete("again")


@pytest.mark.parametrize("shared", [False, True])
def test_a_group_that_is_reset_again_and_again_gets_to_the_end(
    channel: shardmq.Channel, topic: str, shared: bool
) -> None:
    found: list[tuple[int | None, int]] = []

    def rows() -> list[dict[str, object]]:
        return channel.group_offsets(topic, "g")

    with channel.group_consumer(topic, "g", start="earliest", shared=shared) as consumer:

        def read() -> None:
            found.extend((message.partition, int(message.body)) for message in consumer.poll(0.02))

        until(lambda: (read(), found)[1], "it consumes")
        for place in ("earliest", "latest", "earliest", 10, "earliest"):
            channel.group_reset(topic, "g", place)  # type: ignore[arg-type]
            found.clear()
            read()
        until(lambda: (read(), not any(row["lag"] for row in rows()))[1], "all is acknowledged")
        assert not any(row["unacked"] for row in rows())
    assert {(partition, n) for partition in range(PARTITIONS) for n in range(EACH)} <= set(found)


def test_what_is_skipped_is_not_waited_for(channel: shardmq.Channel, topic: str) -> None:
    with channel.group_consumer(topic, "g", start="earliest", auto_commit=False) as consumer:
        until(lambda: (consumer.poll(0.02), len(consumer.offsets) == PARTITIONS)[1], "it has all partitions")
        channel.group_reset(topic, "g", "latest")
        publish_all(channel, "again-0", [b"new"])
        until(lambda: b"new" in [message.body for message in consumer.poll(0.02)], "what came later is there")


@pytest.mark.parametrize("name", ["\n", "a\x00b", "\x1b[2J", "\x7f"])
def test_a_name_that_nobody_could_reset_is_no_groups(channel: shardmq.Channel, topic: str, name: str) -> None:
    with pytest.raises(errors.PreconditionFailed, match="without control characters"):
        channel.group_consumer(topic, name)
    with pytest.raises(errors.InvalidRequest, match="control character"):
        channel.group_reset(topic, name, "earliest")


@pytest.mark.parametrize("place", ["earliest", 10])
def test_what_a_program_without_members_staged_before_a_reset_is_not_committed(
    channel: shardmq.Channel, topic: str, place: str | int
) -> None:
    channel.group_commit(topic, "g", {0: 20, 1: 20})
    late = channel.transaction(f"staged-before-{place}")
    late.group_commit(topic, "g", {0: 40, 3: 40})
    channel.group_reset(topic, "g", place)  # type: ignore[arg-type]
    with pytest.raises(errors.PreconditionFailed, match="or the group was reset"):
        late.commit()
    late.abort()
    assert {row["offset"] for row in channel.group_offsets(topic, "g")} == {0 if place == "earliest" else place}


@pytest.mark.parametrize("partition", [0, 3])
def test_a_group_that_was_deleted_does_not_come_back_with_a_transaction(
    channel: shardmq.Channel, topic: str, partition: int
) -> None:
    channel.group_commit(topic, "g", {0: 20})
    late = channel.transaction(f"staged-of-deleted-{partition}")
    late.group_commit(topic, "g", {partition: 40})
    channel.group_delete(topic, "g")
    with pytest.raises(errors.PreconditionFailed, match="group 'g' was deleted"):
        late.commit()
    late.abort()
    assert {row["offset"] for row in channel.group_offsets(topic, "g")} == {None}


@pytest.mark.usefixtures("topic")
def test_what_a_transaction_has_read_before_a_reset_is_read_again(channel: shardmq.Channel) -> None:
    """Neither does the consumer take it for copies of what it has, nor does a commit skip it."""
    options: dict[str, object] = {"start": "earliest", "auto_commit": False, "pull": 10, "prefetch": 10}
    with channel.group_consumer("again-0", "g", **options) as consumer:  # type: ignore[arg-type]
        for turn in range(2):
            assert [int(message.body) for message in consumer.poll(10)] == list(range(10 * turn, 10 * turn + 10))
            with channel.transaction(f"reset-{turn}") as transaction:
                transaction.commit_offsets(consumer)
        assert consumer.poll(10)
        late = channel.transaction("reset-late")
        late.commit_offsets(consumer)
        assert channel.group_reset("again-0", "g", "earliest") == {0: (20, 0)}
        with pytest.raises(errors.PreconditionFailed, match="newer member"):
            late.commit()
        late.abort()
    with channel.group_consumer("again-0", "g", **options) as consumer:  # type: ignore[arg-type]
        assert [int(message.body) for message in consumer.poll(10)] == list(range(10))
        with channel.transaction("reset-first") as transaction:
            transaction.commit_offsets(consumer)
        channel.group_reset("again-0", "g", "earliest")
        found: list[int] = []
        until(lambda: (found.extend(int(each.body) for each in consumer.poll(0.1)), 9 in found)[1], "it reads again")
        assert found[-10:] == list(range(10))
        with channel.transaction("reset-again") as transaction:
            transaction.commit_offsets(consumer)
        assert channel.group_offsets("again-0", "g")[0]["offset"] == 10
