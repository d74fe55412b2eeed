"""Groups of a topic: what their members were told is committed, and what must be so after a power loss."""

import time
from dataclasses import dataclass, field

import shardmq

TOPIC, PARTITIONS = "events", 2
STREAMS = [f"{TOPIC}-{number}" for number in range(PARTITIONS)]
ORDERED, SHARED = "in-order", "sharing"
POLL_SECONDS = 0.1
TURNS = 12
"""After so many, a member leaves its group, and joins it again."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Left:
    """What a broker has of the groups.

    Attributes:
        offsets: by partition, where the ordered group is.
        epochs: by partition, the newest of the ordered group.
        unread: what the shared group gets.
        ends: of the partitions.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    unread: set[Place] = field(default_factory=set)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupNotes:
    """What members note, with times (monotonic nanoseconds).

    Attributes:
        asked: offsets that were acknowledged: (when, partition, offset).
        committed: where the ordered group was told to be, and its epoch: (when, partition, offset, epoch).
        acked: when each message was acknowledged for the shared group.
        done: when somebody was told that it is.
    """

    asked: list[tuple[int, int, int]] = field(default_factory=list)
    committed: list[tuple[int, int, int, int]] = field(default_factory=list)
    acked: dict[Place, int] = field(default_factory=dict)
    done: dict[Place, int] = field(default_factory=dict)

    def check(self, moment: int, left: Left) -> list[str]:
        """What is wrong with what is left after a power loss."""
        wrongs = []
        for number, end in left.ends.items():
            offset, epoch = left.offsets.get(number, 0), left.epochs.get(number, 0)
            asked = max([high for at, place, high in self.asked if place == number and at <= moment], default=0)
            told = [each[2:] for each in self.committed if each[1] == number and each[0] <= moment]
            if offset > asked:
                wrongs.append(f"partition {number} is at {offset}, and nobody acknowledged more than {asked}")
            if any(offset < committed or epoch < since for committed, since in told):
                wrongs.append(f"partition {number} is at {offset} in epoch {epoch}, and was at {max(told)}")
            for place in ((number, each) for each in range(end)):
                if place in left.unread:
                    if self.done.get(place, moment + 1) <= moment:
                        wrongs.append(f"{place} comes again, and was acknowledged")
                elif self.acked.get(place, moment + 1) > moment:
                    wrongs.append(f"{place} does not come, and nobody acknowledged it")
        return wrongs


def consume_in_order(channel: shardmq.Channel, notes: GroupNotes) -> None:
    """Be a member of the ordered group for a while."""
    with channel.group_consumer(TOPIC, ORDERED, start="earliest", auto_commit=False, pull=10) as consumer:
        for _ in range(TURNS):
            if not consumer.poll(POLL_SECONDS):
                continue
            now = time.monotonic_ns()
            notes.asked += [(now, number, offset) for number, offset in consumer.offsets.items()]
            consumer.commit()
            rows = channel.group_offsets(TOPIC, ORDERED)
            now = time.monotonic_ns()
            notes.committed += [(now, row["partition"], row["offset"] or 0, row["epoch"]) for row in rows]


def consume_in_turn(channel: shardmq.Channel, notes: GroupNotes) -> None:
    """Be a member of the shared group for a while; it acks two of three messages at once."""
    with channel.group_consumer(TOPIC, SHARED, start="earliest", auto_commit=False, pull=10, shared=True) as consumer:
        for turn in range(TURNS):
            places = []
            for message in consumer.poll(POLL_SECONDS):
                if message.offset % 3 == turn % 3:
                    message.nack(delay_ms=20)
                    continue
                places.append((message.partition, message.offset))
                notes.acked.setdefault(places[-1], time.monotonic_ns())
                message.ack()
            consumer.commit()
            now = time.monotonic_ns()
            for place in places:
                notes.done.setdefault(place, now)


def look(channel: shardmq.Channel) -> tuple[Left, dict[str, list[tuple[str, bool]]]]:
    """What there is of the groups, and of the topic's messages; the shared group has read all then."""
    left, found = Left(), {}
    for number, stream in enumerate(STREAMS):
        found[stream], next_one = [], 0
        while True:
            pulled = channel.pull(TOPIC, number, next_one, 10_000)
            found[stream] += [(message.body.decode(), False) for message in pulled]
            next_one = left.ends[number] = pulled.next
            if next_one == pulled.end:
                break
    for row in channel.group_offsets(TOPIC, ORDERED):
        left.offsets[row["partition"]], left.epochs[row["partition"]] = row["offset"] or 0, row["epoch"]
    waiting = sum(row["end"] if row["lag"] is None else row["lag"] for row in channel.group_offsets(TOPIC, SHARED))
    if waiting:
        with channel.group_consumer(TOPIC, SHARED, start="earliest", auto_commit=False, shared=True) as consumer:
            while len(left.unread) < waiting:
                messages = consumer.poll(10)
                assert messages, f"{len(left.unread)} of {waiting} came"
                left.unread.update((message.partition or 0, message.offset or 0) for message in messages)
                for message in messages:
                    message.ack()
            assert not consumer.poll(0), "more came than were left"
    return left, found
