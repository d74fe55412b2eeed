"""Rates, percentiles, and the check that every message arrived exactly once."""

from array import array
from typing import Any, Final

import msgspec

from shardmq.cmd.bench.consumers import Notes
from shardmq.cmd.bench.settings import NUMBER_BITS, Settings
from shardmq.cmd.bench.trial import Published
from shardmq.errors import ShardmqError

SAMPLES_MAX: Final = 500_000
"""Most latencies that percentiles are made of; of more messages, every second, third, … counts."""


class Latency(msgspec.Struct, frozen=True):
    """Time from the publish (or the time it was due) to the delivery to a consumer, in milliseconds."""

    p50: float
    p99: float
    max: float


class Figures(msgspec.Struct, frozen=True):
    """The figures of a measurement. Rates are messages a second.

    Attributes:
        publish_msgs_per_s: first publish to last confirm.
        consume_msgs_per_s: first delivery to last delivery; None where nothing was consumed.
        end_to_end_msgs_per_s: first publish to last delivery; the same.
        latency_ms: of single messages; the same.
        settings: what was measured, and the machine.
    """

    publish_msgs_per_s: float
    consume_msgs_per_s: float | None
    end_to_end_msgs_per_s: float | None
    latency_ms: Latency | None
    settings: dict[str, Any]


def figures(settings: Settings, published: list[Published], notes: list[Notes], more: dict[str, Any]) -> Figures:
    """The figures of one measurement.

    Args:
        settings: what was measured.
        published: what the producers noted.
        notes: what the consumers noted.
        more: facts of the machine; they go into the settings.

    Raises:
        ShardmqError: messages are missing, or came twice.
    """
    began = min(note.first_ns for note in published)
    confirmed = max(note.last_ns for note in published)
    measured = {
        **msgspec.to_builtins(settings),
        "window": settings.window,
        "prefetch": settings.prefetch,
        "batch_records": settings.step if settings.mode == "bulk" else 1,
        **more,
    }
    published_rate = rate(settings.messages, began, confirmed)
    if not notes:
        return Figures(published_rate, None, None, None, measured)
    check(settings, notes)
    first = min(min(note.times) for note in notes if note.times)
    last = max(max(note.times) for note in notes if note.times)
    latencies, every = sample(settings.messages, notes)
    return Figures(
        published_rate,
        rate(settings.messages, first, last),
        rate(settings.messages, began, last),
        Latency(percentile(latencies, 0.50), percentile(latencies, 0.99), percentile(latencies, 1.0)),
        {**measured, "latency_of_every": every},
    )


def check(settings: Settings, notes: list[Notes]) -> None:
    """Check that every published message arrived exactly once.

    Raises:
        ShardmqError: messages were lost, delivered twice, or not published by this measurement.
    """
    seen = [bytearray(settings.share(producer)) for producer in range(settings.producers)]
    mask = (1 << NUMBER_BITS) - 1
    again = unknown = 0
    for note in notes:
        for heads in note.heads:
            for number in array("Q", heads)[::2]:
                producer, place = number >> NUMBER_BITS, number & mask
                if producer >= len(seen) or place >= len(seen[producer]):
                    unknown += 1
                elif seen[producer][place]:
                    again += 1
                else:
                    seen[producer][place] = 1
    missing = sum(marks.count(0) for marks in seen)
    if missing or again or unknown:
        raise ShardmqError(
            f"of {settings.messages:,} messages {missing:,} did not come, {again:,} came more than once and "
            f"{unknown:,} are not of this measurement ({sum(note.redelivered for note in notes):,} marked redelivered)"
        )


def sample(messages: int, notes: list[Notes]) -> tuple[list[int], int]:
    """Latencies in ns, sorted, of every n-th message; and n."""
    every = -(-messages // SAMPLES_MAX)
    latencies = []
    place = 0
    for note in notes:
        for heads, came_at in zip(note.heads, note.times, strict=True):
            stamps = array("Q", heads)[1::2]
            latencies.extend([came_at - stamp for stamp in stamps[-place % every :: every]])
            place += len(stamps)
    latencies.sort()
    return latencies, every


def rate(messages: int, start_ns: int, end_ns: int) -> float:
    """Messages a second."""
    return round(messages * 1e9 / max(end_ns - start_ns, 1), 1)


def percentile(latencies: list[int], share: float) -> float:
    """The latency that `share` of all do not exceed, in milliseconds."""
    place = max(0, min(len(latencies) - 1, int(share * len(latencies) + 0.999999) - 1))
    return round(latencies[place] / 1e6, 3)
