"""Turns: messages that nothing sends to a partition take one partition after the other.

The turn of numbered messages follows from their numbers: sent again, they go where they were.
"""

from random import getrandbits
from typing import Final

from shardmq.limits import FRAMED_PRODUCERS, KEYED_NUMBERS
from shardmq.protocol.native.operations.basic import BasicPublish

TURN_BITS: Final = 32
"""Bits of a turn that is chosen at random."""

TURN_MESSAGES: Final = 256
"""Messages of a producer's numbers that take the same turn, where it may frame them differently when it sends them
again."""


def turn_of(producer: int, number: int) -> int:
    """Whose turn it is to take a message that its producer has numbered; the same each time it comes."""
    return producer + number // TURN_MESSAGES


def turns_of(publish: BasicPublish) -> list[tuple[int, int, int]]:
    """The turns that the messages of a numbered publish take: (first message, behind the last one, turn) of each.

    Producers that send again in the same frames have one turn for each frame, so that it stays whole.
    """
    producer, sequence, count = publish.producer, publish.sequence, publish.count
    if producer >= FRAMED_PRODUCERS and not publish.transaction:
        return [(0, count, producer + sequence // count)]
    starts = [0, *range(TURN_MESSAGES - sequence % TURN_MESSAGES, count, TURN_MESSAGES)]
    ends = [*starts[1:], count]
    return [(start, end, turn_of(producer, sequence + start)) for start, end in zip(starts, ends, strict=True)]


def turn_of_keyed(publish: BasicPublish) -> int:
    """The turn of a publish whose messages have keys of their own: it is sent again in the same frame."""
    if not publish.producer:
        return getrandbits(TURN_BITS)
    return publish.producer + publish.sequence // (KEYED_NUMBERS * publish.count)
