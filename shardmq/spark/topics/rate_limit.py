"""How far a micro-batch goes: all that is there, or a share of it by the backlog of each partition."""

from collections.abc import Mapping

from shardmq.spark.topics.offsets import Places, TopicPartition


def limited(start: Places, end: Places, rows: int) -> Places:
    """Where a micro-batch of about `rows` messages ends.

    Each partition gives a share in proportion to what it has waiting, and one message at least, so that a small backlog
    beside large ones gets on as well. The shares are `rows` together; more only where there are more partitions.

    Args:
        start: where each partition begins; one that is missing begins at 0.
        end: where each would end without a limit.
        rows: messages of the micro-batch.
    """
    waiting = _waiting(start, end)
    total = sum(waiting.values())
    if total <= rows:
        return dict(end)
    largest_first = sorted(waiting, key=lambda partition: (-waiting[partition], partition))
    shares = {partition: max(1, rows * waiting[partition] // total) for partition in largest_first}
    over = sum(shares.values()) - rows
    for partition in largest_first:
        given = min(over, shares[partition] - 1) if over > 0 else max(over, shares[partition] - waiting[partition])
        shares[partition] -= given
        over -= given
    return end | {partition: start.get(partition, 0) + share for partition, share in shares.items()}


def rows_of_bytes(start: Places, end: Places, message_bytes: Mapping[TopicPartition, float], bytes_max: int) -> int:
    """About how many messages of a backlog have so many bytes; one at least.

    Args:
        start: where each partition begins; one that is missing begins at 0.
        end: where each would end.
        message_bytes: the size of a message of each partition that has some waiting.
        bytes_max: bytes at most.
    """
    waiting = _waiting(start, end)
    rows = sum(waiting.values())
    size = sum(count * message_bytes[partition] for partition, count in waiting.items())
    return rows if size <= bytes_max else max(1, int(rows * bytes_max / size))


def _waiting(start: Places, end: Places) -> Places:
    """How many messages each partition has waiting, where it has any."""
    return {partition: place - begin for partition, place in end.items() if place > (begin := start.get(partition, 0))}
