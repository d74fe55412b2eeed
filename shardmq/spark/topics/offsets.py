"""Places in topics: the offsets that checkpoints have, and where a job begins and ends.

An offset is that of the next message to read. In checkpoints and options places are written as Kafka's source does:

    {"orders": {"0": 23, "1": 7}, "payments": {"0": 0}}

Checkpoints have ids of partitions besides (partition_ids.py).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from shardmq.errors import InvalidRequest, PreconditionFailed
from shardmq.spark.connection.topics import PartitionState
from shardmq.spark.option_values import EARLIEST, EARLIEST_NUMBER, LATEST, LATEST_NUMBER, PARTITION_IDS
from shardmq.spark.option_values import Offsets as ByTopic
from shardmq.spark.options import Options

NAMED_MAX: Final = 10
"""Partitions that an error names."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"topic '{self.topic}', partition {self.number}"


Places = dict[TopicPartition, int]
"""An offset for each partition."""

States = Mapping[TopicPartition, PartitionState]
TimeSeeker = Callable[[TopicPartition, int], int]
"""Finds the offset of the first message of a time, in milliseconds, or later; of the next one to come without any."""

Json = dict[str, dict[str, int]]


def to_json(places: Mapping[TopicPartition, int]) -> Json:
    """Places as a checkpoint has them."""
    table: Json = {}
    for partition in sorted(places):
        table.setdefault(partition.topic, {})[str(partition.number)] = places[partition]
    return table


def from_json(table: Json) -> Places:
    """Places as a checkpoint has them, read."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, offsets in table.items()
        if not topic.startswith(PARTITION_IDS)
        for number, offset in offsets.items()
    }


def start_of(options: Options, states: States, usual: str, seek: TimeSeeker) -> Places:
    """Where a job begins.

    Args:
        options: of the job.
        states: the partitions it reads.
        usual: earliest or latest, where no option says.
        seek: finds times.

    Raises:
        InvalidRequest: an option leaves out a partition, or names one that is not read; or there is no message of the
            starting time.
        PreconditionFailed: an offset is not there, and failOnDataLoss is set.
    """
    if options.starting_time is not None:
        times = dict.fromkeys(states, options.starting_time)
        return _at_times(options, states, times, seek)
    if options.starting_times is not None:
        times = _of_all("startingOffsetsByTimestamp", options.starting_times, states)
        return _at_times(options, states, times, seek)
    given = options.starting_offsets or usual
    if given in (EARLIEST, LATEST):
        return {partition: _word(state, given == EARLIEST) for partition, state in states.items()}
    assert not isinstance(given, str), "options have checked it"
    offsets = _of_all("startingOffsets", given, states)
    return {partition: _checked(partition, offsets[partition], states, options) for partition in states}


def end_of(options: Options, states: States, seek: TimeSeeker) -> Places:
    """Where a batch ends.

    Args:
        options: of the job.
        states: the partitions it reads.
        seek: finds times.

    Raises:
        InvalidRequest: an option leaves out a partition, or names one that is not read.
        PreconditionFailed: an offset is not there, and failOnDataLoss is set.
    """
    if options.ending_time is not None:
        return {partition: seek(partition, options.ending_time) for partition in states}
    if options.ending_times is not None:
        times = _of_all("endingOffsetsByTimestamp", options.ending_times, states)
        return {partition: seek(partition, times[partition]) for partition in states}
    given = options.ending_offsets
    if isinstance(given, str):
        return {partition: state.next for partition, state in states.items()}
    offsets = _of_all("endingOffsets", given, states)
    return {partition: _checked(partition, offsets[partition], states, options) for partition in states}


def lost(partition: TopicPartition, first: int, end: int, state: PartitionState) -> str:
    """A sentence about messages that were to be read and are not there."""
    if first > state.next or end > state.next:
        why = (
            f"the partition ends at {state.next}: it was made anew, or restored from a backup, after these offsets "
            "were read or written down"
        )
    else:
        why = f"the oldest one there is has offset {state.first}; retention dropped those before it"
    return f"{partition}: messages [{first}, {end}) cannot be read: {why}"


LOSS_ADVICE: Final = (
    "keep messages longer than a job may be away (x-max-age, x-max-length-bytes), or set failOnDataLoss to false to go "
    "on with those there are"
)


def within(partition: TopicPartition, offset: int, states: States, options: Options) -> int:
    """An offset that messages are to be read from, moved to where there are some unless that is to fail.

    Raises:
        PreconditionFailed: it is not there, and failOnDataLoss is set.
    """
    state = states[partition]
    if state.first <= offset <= state.next:
        return offset
    if options.fails_on_loss:
        range_end = state.first if offset < state.first else offset
        raise PreconditionFailed(f"{lost(partition, min(offset, range_end), range_end, state)}; {LOSS_ADVICE}")
    return min(max(offset, state.first), state.next)


def gone(partitions: Iterable[TopicPartition]) -> str:
    """A sentence about partitions that were deleted while a stream read them."""
    return f"not there any more: {named(partitions)}. What the stream had not read of that is lost"


GONE_ADVICE: Final = "set failOnDataLoss to false to go on without"


def _word(state: PartitionState, is_earliest: bool) -> int:
    return state.first if is_earliest else state.next


def _checked(partition: TopicPartition, offset: int, states: States, options: Options) -> int:
    if offset in (EARLIEST_NUMBER, LATEST_NUMBER):
        return _word(states[partition], offset == EARLIEST_NUMBER)
    return within(partition, offset, states, options)


def _at_times(options: Options, states: States, times: Places, seek: TimeSeeker) -> Places:
    places = {}
    for partition, state in states.items():
        place = places[partition] = seek(partition, times[partition])
        if place >= state.next and options.late_start != LATEST:
            raise InvalidRequest(
                f"{partition} has no message of time {times[partition]} ms or later; with "
                "startingOffsetsByTimestampStrategy=latest it is read from its end"
            )
    return places


def _of_all(option: str, given: ByTopic, states: States) -> Places:
    """What an option says, where it says it of each partition and of no other.

    Raises:
        InvalidRequest: it does not.
    """
    places = {
        TopicPartition(topic, number): value for topic, of_topic in given.items() for number, value in of_topic.items()
    }
    if missing := set(states) - set(places):
        raise InvalidRequest(f"option {option} says nothing of {named(missing)}; it is to name all that are read")
    if unknown := set(places) - set(states):
        raise InvalidRequest(f"option {option} names {named(unknown)}, not among those that are read; leave that out")
    return places


def named(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in words, some of them where they are many."""
    ordered = sorted(partitions)
    more = f" and {len(ordered) - NAMED_MAX} more" if len(ordered) > NAMED_MAX else ""
    return "; ".join(map(str, ordered[:NAMED_MAX])) + more
