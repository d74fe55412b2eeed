"""Messages waiting to be sent that share an exchange, each with a routing key of its own."""

from typing import Final, cast

from msgspec import Raw

from shardmq.client.core.batching import MIXED_BYTES, NO_EXTRAS, PublishBatch, PublishOptions, flags_of
from shardmq.client.core.publishing.builder import BatchBuilder, Content
from shardmq.client.core.publishing.mixed import MixedBuilder
from shardmq.client.core.validation import check_names
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED

KEY_CHARACTERS: Final = 255
"""ASCII characters that a routing key may have; others are looked at."""

SINGLE_RECORDS: Final = 8
"""So many messages of one key, and the next one with that key is one of many."""

KeyedContent = tuple[Raw, bytes, str]
"""A body that waits between its encoded properties and its key."""


class KeyedBuilder(MixedBuilder):
    """Messages waiting to be sent that share an exchange, each with a routing key of its own.

    It takes those whose properties alternate, too. Where all that is taken has one key, that is a batch without keys;
    and the next message with that key begins a builder of another kind.

    Args:
        like: a builder of messages as they come, whose key is one of many.
    """

    __slots__ = ("_only_key",)
    is_keyed = True

    def __init__(self, like: BatchBuilder) -> None:
        super().__init__(like)
        self.routing_key = ""
        self._only_key: str | None = None

    def takes(self, routing_key: str, exchange: str, properties: Properties | None, extras: PublishOptions) -> bool:
        """Whether a message published like that may join."""
        return bool(
            self.exchange == exchange
            and extras == NO_EXTRAS
            and self.flags == flags_of(properties)
            and (self.heads or self._encoded or self._only_key != routing_key)
        )

    def continues(self, other: BatchBuilder) -> bool:
        """Whether its messages may share a batch with those of another one, and differ in keys and properties alone."""
        return (
            self.exchange == other.exchange
            and self.extras == other.extras
            and self.flags == other.flags
            and self.numbering == other.numbering
            and not other.is_keyed
        )

    def follow(self, other: BatchBuilder) -> None:
        """Take over what another one has, before its own: all of it has one key."""
        super().follow(other)
        if self.packed_count:
            packed = keyed_records.with_keys(b"".join(self.packed), self.packed_count, other.routing_key)
            self.packed, self.packed_bytes = [packed], len(packed)

    def check_key(self, routing_key: str) -> None:
        """Make sure of a key, as `check_names` does.

        Raises:
            TypeError: it is no text.
            InvalidRequest: it is too long, or no valid Unicode.
        """
        if type(routing_key) is not str or len(routing_key) > KEY_CHARACTERS or not routing_key.isascii():
            check_names(routing_key=routing_key)

    def pack(self, bodies: list[Content]) -> None:
        """Pack some of its bodies."""
        waiting = cast("list[KeyedContent]", bodies)
        key = waiting[0][2]
        if {type(key) for *_, key in waiting} != {str}:
            waiting = [(head, body, str.__str__(key)) for head, body, key in waiting]
        if self.packed_count or any(each[2] != key for each in waiting):
            self._only_key = None
            packed = keyed_records.pack(waiting)
        else:
            self._only_key = key
            packed = records.pack_packed([(head, body) for head, body, _ in waiting])
            if len(waiting) >= SINGLE_RECORDS:
                self.heads, self._encoded = {}, {}
        self._add_packed(packed, len(waiting))

    def parts(self, bodies: list[Content]) -> list[list[Content]]:
        """Cut bodies into batches."""
        waiting = cast("list[KeyedContent]", bodies)
        if len(bodies) == 1 or sum([len(head) + len(body) + len(key) for head, body, key in waiting]) <= MIXED_BYTES:
            return [bodies]
        middle = len(bodies) // 2
        return [*self.parts(bodies[:middle]), *self.parts(bodies[middle:])]

    def _batch(self) -> PublishBatch:
        exchange, _, flags, *rest = super()._batch()
        key = self._only_key
        batch = (exchange, "", flags | KEYED, *rest) if key is None else (exchange, key, flags, *rest)
        return cast("PublishBatch", batch)
