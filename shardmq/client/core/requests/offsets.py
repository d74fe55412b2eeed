"""Requests about topics by offsets, as values."""

from typing import Any, Final

import msgspec

from shardmq.client.api.message import Delivery, Pulls
from shardmq.client.api.results import peeked, result_of
from shardmq.client.api.topics import Pulled, PullOptions, Start, place_of, tag_list
from shardmq.client.core.requests.request import Request
from shardmq.client.core.validation import check_name, check_number
from shardmq.limits import PULL_BYTES, PULL_BYTES_MAX, PULL_WAIT_MS_MAX, RECORD_BATCH_RECORDS_MAX
from shardmq.protocol.native.operations.offsets import TopicPull

PARTITION_MAX: Final = 2**31 - 1
"""The highest number of a partition on the wire."""

_PULLED: Final = Pulls()


class _Pulled(msgspec.Struct, frozen=True):
    deliveries: list[dict[str, Any]]
    next: int
    first: int
    end: int


def topic_pull(topic: str, partition: int, start: Start, count: int, options: PullOptions) -> Request[Pulled]:
    """Read messages of a partition from an offset on."""
    check_name("topic", topic)
    check_number("a partition", partition, 0, PARTITION_MAX)
    check_number("a count of messages to pull", count, 1, RECORD_BATCH_RECORDS_MAX)
    bytes_max, wait_ms = options.get("bytes_max", PULL_BYTES), options.get("wait_ms", 0)
    check_number("bytes_max", bytes_max, 1, PULL_BYTES_MAX)
    check_number("wait_ms", wait_ms, 0, PULL_WAIT_MS_MAX)
    if strange := options.keys() - PullOptions.__annotations__.keys():
        raise TypeError(f"a pull has no option {', '.join(sorted(strange))}")
    begin, number = place_of(start)
    tags, has_untagged = tag_list(options.get("tags")), options.get("has_untagged", False)
    operation = TopicPull(0, 0, topic, partition, begin, number, count, bytes_max, wait_ms, tags, has_untagged)

    def shape(result: object) -> Pulled:
        answer = result_of(_Pulled, result)
        deliveries = [Delivery(frame, _PULLED, topic) for frame in peeked(answer.deliveries)]
        messages = [message for delivery in deliveries for message in delivery.messages()]
        return Pulled(messages, answer.next, answer.first, answer.end)

    return Request(f"pulling from partition {partition} of topic '{topic}'", shape, operation)
