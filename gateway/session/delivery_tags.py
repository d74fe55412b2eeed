"""Delivery tags of one channel, kept as ranges: they rise by one from 1, and each delivery is one span of them."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from shardmq.errors import ChannelError, ReplyCode

Holder = TypeVar("Holder")
_TRIM_AFTER: Final = 512


@dataclass(slots=True)
class _Span(Generic[Holder]):
    first: int  # tag
    end: int
    holder: Holder
    sequence: int  # of the message with tag `first`


class DeliveryTags(Generic[Holder]):
    """Which tags are outstanding, and whose messages they are.

    A span maps tags [first, end) to sequence numbers from `sequence` on, held by `holder` (a consumer).

    Attributes:
        next_tag: of the next message.
        outstanding: how many are not settled.
        unasked: messages that needed no acknowledgement, so far.
        gets: messages that were got.
        gets_unasked: those of them that needed no acknowledgement.
        gets_empty: answers to gets that had no message.
        redelivered: messages that were delivered before.
        acked: messages that were acknowledged.
        rejected: messages that were rejected without requeue.
    """

    __slots__ = (
        "_firsts",
        "_head",
        "_spans",
        "acked",
        "gets",
        "gets_empty",
        "gets_unasked",
        "next_tag",
        "outstanding",
        "redelivered",
        "rejected",
        "unasked",
    )

    def __init__(self) -> None:
        self.next_tag = 1
        self.outstanding = self.unasked = self.gets = self.gets_unasked = self.gets_empty = 0
        self.redelivered = self.acked = self.rejected = 0
        self._spans: list[_Span[Holder]] = []
        self._firsts: list[int] = []
        self._head = 0  # spans before it are settled; they are cut off together, as list.pop(0) moves all others

    def hand_out(self, holder: Holder, sequence: int, count: int, outstanding: bool) -> int:
        """Number `count` messages.

        Returns:
            The first one's tag.
        """
        first = self.next_tag
        self.next_tag = first + count
        if not outstanding:
            self.unasked += count
            return first
        self.outstanding += count
        spans = self._spans
        if len(spans) > self._head:
            last = spans[-1]
            if last.end == first and last.sequence + first - last.first == sequence and last.holder == holder:
                last.end += count  # what follows closely is one span: many small deliveries are acknowledged together
                return first
        spans.append(_Span(first, first + count, holder, sequence))
        self._firsts.append(first)
        return first

    def count_get(self, unasked: bool, redelivered: bool) -> None:
        """Count a message that was got, and handed out by that."""
        self.gets += 1
        self.gets_unasked += unasked
        self.redelivered += redelivered

    def settle(self, first: int, last: int) -> list[tuple[Holder, int, int]]:
        """Settle tags `first` to `last`, both included: they are outstanding no longer.

        Returns:
            Whose they are, as sequence ranges [start, end): (holder, start, end).

        Raises:
            ChannelError: PRECONDITION_FAILED when one of them is not outstanding; nothing is taken out then.
        """
        end = last + 1
        spans, firsts, head = self._spans, self._firsts, self._head
        if head < len(spans) and spans[head].first == first and spans[head].end == end:  # the oldest, as a rule
            span = spans[head]
            self._head += 1
            self.outstanding -= end - first
            if self._head > _TRIM_AFTER:
                self._trim()
            return [(span.holder, span.sequence, span.sequence + end - first)]
        place = self._locate(first, end)
        taken: list[tuple[Holder, int, int]] = []
        while first < end:
            span = spans[place]
            stop = min(end, span.end)
            start_sequence = span.sequence + first - span.first
            taken.append((span.holder, start_sequence, start_sequence + stop - first))
            if first > span.first and stop < span.end:  # out of the middle
                rest = _Span(stop, span.end, span.holder, span.sequence + stop - span.first)
                span.end = first
                spans.insert(place + 1, rest)
                firsts.insert(place + 1, stop)
            elif first > span.first:
                span.end = first
                place += 1
            elif stop < span.end:
                span.sequence += stop - span.first
                span.first = firsts[place] = stop
            elif place == self._head:
                self._head += 1
                place += 1
            else:
                del spans[place], firsts[place]
            self.outstanding -= stop - first
            first = stop
        if self._head > _TRIM_AFTER:
            self._trim()
        return taken

    def through(self, last: int) -> list[tuple[int, int]]:
        """The tags up to `last` that are outstanding, as ranges with both ends included; all of them where it is 0.

        Raises:
            ChannelError: PRECONDITION_FAILED when `last` is not outstanding itself.
        """
        spans, end = self._spans, len(self._spans)
        if last:
            end = self._locate(last, last + 1) + 1
        ranges: list[tuple[int, int]] = []
        for place in range(self._head, end):
            span = spans[place]
            if ranges and ranges[-1][1] + 1 == span.first:
                ranges[-1] = ranges[-1][0], span.end - 1
            else:
                ranges.append((span.first, span.end - 1))
        if last:
            ranges[-1] = ranges[-1][0], last
        return ranges

    def look(self, first: int, last: int) -> list[tuple[Holder, int, int]]:
        """Whose tags `first` to `last` are, as `settle` returns it; they stay outstanding.

        Raises:
            ChannelError: PRECONDITION_FAILED when one of them is not outstanding.
        """
        end = last + 1
        place = self._locate(first, end)
        seen: list[tuple[Holder, int, int]] = []
        while first < end:
            span = self._spans[place]
            stop = min(end, span.end)
            start_sequence = span.sequence + first - span.first
            seen.append((span.holder, start_sequence, start_sequence + stop - first))
            first = stop
            place += 1
        return seen

    def oldest(self, is_wanted: Callable[[Holder], bool]) -> tuple[int, Holder, int] | None:
        """Look for the oldest outstanding message of certain holders.

        Returns:
            Its tag, who holds it, and its sequence number; None where they hold none.
        """
        for span in islice(self._spans, self._head, None):
            if is_wanted(span.holder):
                return span.first, span.holder, span.sequence
        return None

    def pass_on(self, holder: Holder, start: int, end: int, other: Holder) -> int:
        """Give `other` what `holder` has of the messages [start, end), under the same tags.

        Returns:
            How many that were.
        """
        passed = 0
        spans: list[_Span[Holder]] = []
        for span in self._spans[self._head :]:
            first, last = span.sequence, span.sequence + span.end - span.first
            low, high = max(first, start), min(last, end)
            if span.holder != holder or low >= high:
                spans.append(span)
                continue
            passed += high - low
            for begin, stop, whose in ((first, low, holder), (low, high, other), (high, last, holder)):
                if begin < stop:
                    spans.append(_Span(span.first + begin - first, span.first + stop - first, whose, begin))
        if passed:
            self._spans, self._firsts, self._head = spans, [span.first for span in spans], 0
        return passed

    def settle_all(self) -> list[tuple[Holder, int, int]]:
        """Settle all that is outstanding; returns what `settle` does."""
        taken = [
            (span.holder, span.sequence, span.sequence + span.end - span.first) for span in self._spans[self._head :]
        ]
        self.clear()
        return taken

    def restore(self, first: int, holder: Holder, start: int, end: int) -> None:
        """Have messages [start, end) outstanding again, under the tags from `first` on, which are settled now."""
        place = bisect_right(self._firsts, first, self._head)
        count = end - start
        self.outstanding += count
        if place > self._head:
            before = self._spans[place - 1]
            if before.end == first and before.holder == holder and before.sequence + first - before.first == start:
                before.end += count
                return
        self._spans.insert(place, _Span(first, first + count, holder, start))
        self._firsts.insert(place, first)

    def take_all(self) -> list[tuple[int, Holder, int, int]]:
        """Settle all that is outstanding; returns it with the first tag of each, as `restore` takes it."""
        taken = [
            (span.first, span.holder, span.sequence, span.sequence + span.end - span.first)
            for span in self._spans[self._head :]
        ]
        self.clear()
        return taken

    def clear(self) -> None:
        """Forget what is outstanding."""
        self._spans, self._firsts, self._head, self.outstanding = [], [], 0, 0

    def _locate(self, first: int, end: int) -> int:
        """The place of the span that holds `first`, once it is certain that all of [first, end) is outstanding."""
        place = bisect_right(self._firsts, first, self._head) - 1
        tag, at = first, place
        while tag < end:
            if at < self._head or at >= len(self._spans) or not self._spans[at].first <= tag < self._spans[at].end:
                raise ChannelError(
                    f"unknown delivery tag {tag}: never given on this channel, or settled before",
                    ReplyCode.PRECONDITION_FAILED,
                )
            tag = self._spans[at].end
            at += 1
        if first >= end:
            raise ChannelError(f"tags {first} to {end - 1} are no range", ReplyCode.PRECONDITION_FAILED)
        return place

    def _trim(self) -> None:
        del self._spans[: self._head], self._firsts[: self._head]
        self._head = 0
