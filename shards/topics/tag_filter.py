"""Which messages a reader wants, by their tags.

A message's tag is its header x-stream-filter-value, as in RabbitMQ's streams. It is looked for exactly when a reader
asks for tags, in the segments whose summary (segments/tag_summary.py) does not exclude them. Neighbours mostly have the
same properties, so the last ones are remembered.
"""

from collections.abc import Callable, Iterable
from typing import Final

from shardmq.message.keyed_records import properties_of
from shardmq.message.record import unpack_properties
from shardmq.message.record_batch import AMQP, RecordBatch
from shardmq.protocol.amqp import properties
from shardmq.shards.segments.segment import Ranges
from shardmq.shards.segments.tag_summary import TAG, may_have

KNOWN_MAX: Final = 4096
"""Properties whose tags are remembered; when there are more, all are forgotten."""

KNOWN_BYTES_MAX: Final = 1024
"""Longer properties are not remembered."""

_TAG_BYTES: Final = TAG.encode()


class TagFilter:
    """The tags that a reader wants.

    Args:
        tags: any of them.
        has_untagged: whether messages without a tag are wanted, too.
    """

    __slots__ = ("_encoded", "_has_untagged", "_known", "_tags")

    def __init__(self, tags: Iterable[str], has_untagged: bool) -> None:
        self._tags = frozenset(tags)
        self._encoded = [tag.encode(errors="surrogatepass") for tag in self._tags]
        self._has_untagged = has_untagged
        self._known: dict[bytes, bool] = {}

    def may_want(self, summary: bytes | None) -> bool:
        """Whether messages may be wanted of a segment with this summary of tags; None where it has none."""
        return self._has_untagged or summary is None or may_have(summary, self._encoded)

    def wanted(self, first: int, batch: RecordBatch) -> Ranges:
        """Return the offsets of the messages that are wanted.

        Args:
            first: offset of the batch's first message.
            batch: the messages.
        """
        known = self._known
        tag_of: Callable[[bytes], str | None] = _of_list if batch.flags & AMQP else _of_properties
        ranges: Ranges = []
        for offset, key in enumerate(properties_of(batch), first):
            is_wanted = known.get(key)
            if is_wanted is None:
                is_wanted = self._look(key, tag_of)
            if is_wanted:
                if ranges and ranges[-1][1] == offset:
                    ranges[-1] = ranges[-1][0], offset + 1
                else:
                    ranges.append((offset, offset + 1))
        return ranges

    def _look(self, key: bytes, tag_of: Callable[[bytes], str | None]) -> bool:
        tag = tag_of(key) if _TAG_BYTES in key else None
        is_wanted = self._has_untagged if tag is None else tag in self._tags
        if len(key) <= KNOWN_BYTES_MAX:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = is_wanted
        return is_wanted


def _of_list(raw: bytes) -> str | None:
    return _of_headers(properties.decode(raw).headers)


def _of_properties(packed: bytes) -> str | None:
    own = unpack_properties(packed)
    return _of_headers(own.headers if own is not None else None)


def _of_headers(headers: object) -> str | None:
    """Return the tag among some headers; one that is no text is none."""
    tag = headers.get(TAG) if isinstance(headers, dict) else None
    return tag if isinstance(tag, str) else None
