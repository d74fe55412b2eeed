"""Topics by the offsets of their messages, and the offsets of groups."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Unpack

from shardmq.client.api.defaults import PULL_COUNT
from shardmq.client.api.topics import Pulled, PullOptions, Start
from shardmq.client.core.requests import groups, offsets
from shardmq.client.core.requests.request import Request

T = TypeVar("T")


class OffsetRequests(ABC):
    """Requests about topics by offsets: part of a channel.

    Each may raise AccessRefused where the user may not do that, NotFound where there is no such topic or partition, and
    the errors that `Channel` names. A stream is a topic whose only partition is 0.
    """

    _timeout: float

    @abstractmethod
    def _ask_for(self, request: Request[T], seconds: float) -> T:
        """Ask, and wait for the answer for so many seconds."""

    @abstractmethod
    def _ask(self, request: Request[T]) -> T:
        """Ask, and wait for the answer."""

    def pull(
        self, topic: str, partition: int, start: Start, count: int = PULL_COUNT, **options: Unpack[PullOptions]
    ) -> Pulled:
        """Read messages of a partition from an offset on, and leave all as it is.

        Args:
            topic: whose.
            partition: its number, from 0.
            start: the offset of the first message, "earliest", "latest", or a time: the first that came then or later.
            count: how many messages at most; fewer come where there are no more, or where they are large.
            options: `tags`: a tag, or a list of them, of which each message is to have one; `has_untagged=True`: beside
                them messages without a tag; `bytes_max`: about how many bytes at most (1 MiB); `wait_ms`: how long to
                wait where there is no message yet (0 to 60,000).

        Returns:
            The messages, each with its `offset`; the offset to read on from (`next`), and the range that is kept.

        Raises:
            OffsetOutOfRange: that offset was dropped by retention, or is past the next one; the error has the range.
            PreconditionFailed: it is a queue whose messages have no offsets.
        """
        request = offsets.topic_pull(topic, partition, start, count, options)
        return self._ask_for(request, self._timeout + options.get("wait_ms", 0) / 1000)

    def group_commit(self, topic: str, group: str, offsets: Mapping[int, int]) -> None:
        """Move a group's offsets on; returns when they are on disk.

        A group is made by its first commit. Its consumers commit by acknowledging; this is for programs that pull.

        Args:
            topic: what the group reads.
            group: its name.
            offsets: by partition, the offset of the message that the group reads next.

        Raises:
            PreconditionFailed: an offset is behind the group's, or outside of what the partition keeps; or a partition
                has an owner, which is not of this channel.
        """
        self._ask(groups.group_commit(topic, group, offsets))

    def group_offsets(self, topic: str, group: str) -> list[dict[str, Any]]:
        """Ask where a group is. What was acknowledged on this channel before is on disk when this returns.

        Args:
            topic: what the group reads.
            group: its name.

        Returns:
            A dict for each partition, in order: `partition`, `first` and `end` (the offsets it keeps, end not
            included), `offset` (of the message the group reads next; None where it has not read), `lag`, `type`,
            `epoch`, `member`, `consumers`, `unacked`, `acked_above`, `delayed`, `dying`, `lost`, and `id`, a number of
            the partition itself: another one once the topic was made anew, or the broker restored from a backup.

        Raises:
            PreconditionFailed: what was acknowledged on this channel for a shared group had no effect, as its shard was
                away, or others have it by now. It is raised once.
        """
        return self._ask(groups.group_offsets(topic, group))

    def group_reset(
        self, topic: str, group: str, start: Start, partitions: Iterable[int] | None = None, dry_run: bool = False
    ) -> groups.Moves:
        """Have a group go on elsewhere, also while its members consume: what they hold is forgotten.

        Args:
            topic: what the group reads.
            group: its name.
            start: an offset, "earliest", "latest", or a time.
            partitions: which ones; all when None.
            dry_run: only tell what would be.

        Returns:
            By partition, the offset before and after; None before where the group had not read it, or where its offset
            was damaged on disk: the reset gives it another one.

        Raises:
            NotFound: there is no such group.
            OffsetOutOfRange: a partition does not have that offset; none is reset then.
        """
        return self._ask(groups.group_reset(topic, group, start, partitions, dry_run))

    def group_delete(self, topic: str, group: str) -> None:
        """Forget a group's offsets. A transaction that has staged one of them cannot be committed any more.

        Raises:
            NotFound: there is no such group.
            PreconditionFailed: it has members.
            Unavailable: a transaction is being decided that commits an offset of it; try again in a moment.
        """
        self._ask(groups.group_delete(topic, group))
