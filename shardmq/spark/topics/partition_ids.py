"""Ids of partitions in checkpoints: they tell a topic from one of its name that was made anew, or restored.

Offsets of a topic that was deleted and declared again begin at 0, and those behind a restored backup are given a second
time. So a checkpoint has the ids of partitions beside their offsets, written as if there was a topic of them:

    {"orders": {"0": 23, "1": 7}, "amq.partition-ids.orders": {"0": -81604378624, "1": -3141592653}}

Checkpoints of earlier versions have none, and earlier versions pass them on, as offsets of a topic that they do not
read. They are negative, so that no version takes them for messages to read.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from shardmq.spark.option_values import PARTITION_IDS
from shardmq.spark.topics.offsets import Json, States, TopicPartition, named

Ids = Mapping[TopicPartition, int]
"""The id of each partition of which it is known."""


def ids_of(states: States) -> Ids:
    """The ids of partitions, as far as the broker tells them."""
    return {partition: state.id for partition, state in states.items() if state.id}


def with_ids(table: Json, ids: Ids) -> Json:
    """Offsets as a checkpoint has them, with ids."""
    joined = dict(table)
    for partition in sorted(ids):
        joined.setdefault(PARTITION_IDS + partition.topic, {})[str(partition.number)] = -ids[partition]
    return joined


def ids_in(table: Json) -> Ids:
    """The ids that a checkpoint has."""
    return {
        TopicPartition(topic.removeprefix(PARTITION_IDS), int(number)): -written
        for topic, of_topic in table.items()
        if topic.startswith(PARTITION_IDS)
        for number, written in of_topic.items()
    }


def made_anew(before: Ids, after: Ids) -> set[TopicPartition]:
    """The partitions that have other ids than before."""
    return {partition for partition, number in after.items() if before.get(partition, number) != number}


def replaced(partitions: Iterable[TopicPartition]) -> str:
    """A sentence about partitions that have other ids than before."""
    return (
        f"{named(partitions)}: not the messages that the stream was reading, as the topic was deleted and made anew, "
        "or the broker restored from a backup"
    )


REPLACED_ADVICE: Final = (
    "begin a new checkpoint, where startingOffsets says, or set failOnDataLoss to false to read all that is there now"
)
