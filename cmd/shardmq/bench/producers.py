"""The producers' processes: one loop for each mode."""

import time
from array import array
from collections.abc import Callable
from typing import Final

import msgspec

from shardmq.client.sync.channel import Channel
from shardmq.cmd.bench.settings import FEATURES, NUMBER_BITS, STAMP, Settings
from shardmq.message.properties import Properties

Progress = Callable[[int], None]
"""Called with the number of messages published so far."""

TELL_EVERY: Final = 256


def bulk(channel: Channel, queues: list[str], settings: Settings, producer: int, progress: Progress) -> None:
    """`publish_many` in batches; a batch's messages share their time stamp."""
    properties = properties_of(settings)
    padding = bytes(settings.size - STAMP.size)
    number = producer << NUMBER_BITS
    done = 0
    with channel.publisher(window=settings.window) as publisher:
        for queue, count in settings.steps(producer):
            heads = array("Q", range(number, number + count)).tobytes()  # 70 ns a message, where packing each takes 200
            tail = time.monotonic_ns().to_bytes(8, "little") + padding
            publisher.publish_many(
                "", queues[queue], [heads[at : at + 8] + tail for at in range(0, 8 * count, 8)], properties
            )
            number += count
            done += count
            progress(done)


def pipelined(channel: Channel, queues: list[str], settings: Settings, producer: int, progress: Progress) -> None:
    """One call for each message, a window of them unconfirmed."""
    if FEATURES[settings.feature].priorities:
        prioritized(channel, queues, settings, producer, progress)
        return
    properties = properties_of(settings)
    padding = bytes(settings.size - STAMP.size)
    first = producer << NUMBER_BITS
    with channel.publisher(window=settings.window) as publisher:
        publish, pack, now = publisher.publish, STAMP.pack, time.monotonic_ns
        for place, (queue, _) in enumerate(settings.steps(producer)):
            publish("", queues[queue], pack(first + place, now()) + padding, properties)
            if place % TELL_EVERY == 0:
                progress(place)


def prioritized(channel: Channel, queues: list[str], settings: Settings, producer: int, progress: Progress) -> None:
    """One call for each message, a window of them unconfirmed, with priorities in turn."""
    feature = FEATURES[settings.feature]
    mode = 1 if settings.transient else None
    turns = [Properties(delivery_mode=mode, priority=priority) for priority in feature.priorities]
    step, count = feature.priority_step, len(turns)
    padding = bytes(settings.size - STAMP.size)
    first = producer << NUMBER_BITS
    with channel.publisher(window=settings.window) as publisher:
        publish, pack, now = publisher.publish, STAMP.pack, time.monotonic_ns
        for place, (queue, _) in enumerate(settings.steps(producer)):
            publish("", queues[queue], pack(first + place, now()) + padding, turns[place // step % count])
            if place % TELL_EVERY == 0:
                progress(place)


def sync(channel: Channel, queues: list[str], settings: Settings, producer: int, progress: Progress) -> None:
    """One message at a time, each confirmed before the next."""
    properties = properties_of(settings)
    padding = bytes(settings.size - STAMP.size)
    first = producer << NUMBER_BITS
    for place, (queue, _) in enumerate(settings.steps(producer)):
        body = STAMP.pack(first + place, time.monotonic_ns()) + padding
        channel.basic_publish("", queues[queue], body, properties)
        progress(place)


def latency(channel: Channel, queues: list[str], settings: Settings, producer: int, progress: Progress) -> None:
    """Messages at a fixed rate, stamped with the time at which they were due.

    Being stamped so, a message that had to wait because the broker or this process was late counts as late
    (coordinated omission would leave it out).
    """
    properties = properties_of(settings)
    padding = bytes(settings.size - STAMP.size)
    first = producer << NUMBER_BITS
    gap = 1e9 * settings.producers / settings.rate
    started_at = time.monotonic_ns() + gap * producer / settings.producers
    with channel.publisher(window=settings.window) as publisher:
        for place, (queue, _) in enumerate(settings.steps(producer)):
            due = int(started_at + place * gap)
            early = due - time.monotonic_ns()
            if early > 0:
                time.sleep(early / 1e9)
            publisher.publish("", queues[queue], STAMP.pack(first + place, due) + padding, properties)
            if place % TELL_EVERY == 0:
                progress(place)


def properties_of(settings: Settings) -> Properties | None:
    """The properties of all messages; None for persistent ones without others."""
    more = FEATURES[settings.feature].properties
    if not settings.transient and not more:
        return None
    return msgspec.convert({**more, "delivery_mode": 1 if settings.transient else None}, Properties)


LOOPS: Final = {"bulk": bulk, "pipelined": pipelined, "sync": sync, "latency": latency}
"""By mode."""
