"""Messages waiting to be sent that share exchange and routing key, and whose properties alternate."""

from typing import Final, cast

from msgspec import Raw

from shardmq.client.core.batching import MIXED_BYTES, NO_EXTRAS, PublishOptions, bytes_beside, flags_of, numbering_of
from shardmq.client.core.publishing.builder import BatchBuilder, Content, Encoded
from shardmq.message import record as records
from shardmq.message.properties import Properties

HEADS_MAX: Final = 64
"""Properties that a builder remembers; past it all are forgotten, as where each message has its own."""

_NOBODYS: Final = Properties()


class MixedBuilder(BatchBuilder):
    """Messages waiting to be sent that share exchange and routing key, and whose properties alternate.

    A body waits with its properties, encoded: in order, and packed together with its neighbours whatever they have.
    (With a builder for each change, which packs what is there, a publish took 4.4 µs where priorities alternate message
    by message, and takes 1.4 so.)

    Args:
        like: a builder of messages as they come, whose properties are the first of many.
    """

    __slots__ = ("_encoded", "_kept")

    def __init__(self, like: BatchBuilder) -> None:
        super().__init__(like.exchange, like.routing_key, like.properties, NO_EXTRAS, like.body_max)
        self.properties = self.plain = _NOBODYS
        self.heads = {}
        self._kept: list[Properties | None] = []  # whose identities are the keys: no other object has them meanwhile
        self._encoded: dict[int, Encoded] = {}  # those with headers, which the program may change: not among the heads

    def takes(self, routing_key: str, exchange: str, properties: Properties | None, extras: PublishOptions) -> bool:
        """Whether a message published like that may join: only its properties are others, and not what flags say."""
        return (
            self.routing_key == routing_key
            and self.exchange == exchange
            and extras == NO_EXTRAS
            and self.flags == flags_of(properties)
            and self.numbering == numbering_of(exchange, properties)
        )

    def head_of(self, properties: Properties | None) -> Raw:
        """Encode properties, for bodies that come with them, and remember that.

        Raises:
            ContentTooLarge: they are too large.
        """
        head = self.head_for(properties)
        if head is not None:
            return head
        bytes_beside(properties)
        encoded, key = Encoded(properties), id(properties)
        if len(self._kept) >= HEADS_MAX:
            self.heads, self._kept, self._encoded = {}, [], {}
        if key not in self._encoded:
            self._kept.append(properties)
        if properties is None or properties.headers is None:
            self.heads[key] = encoded.head
        else:
            self._encoded[key] = self.encoded = encoded
        return encoded.head

    def head_for(self, properties: Properties | None) -> Raw | None:
        """The properties, encoded, as bodies that come with them are to wait here; None where they are not known."""
        encoded = self._encoded.get(id(properties))
        if encoded is None or properties is None or properties.headers is None:
            return super().head_for(properties)
        return encoded.head if encoded.is_of(properties.headers) else None

    def pack(self, bodies: list[Content]) -> None:
        """Pack some of its bodies."""
        packed = records.pack_packed(_pairs(bodies))
        self._add_packed(packed, len(bodies))

    def parts(self, bodies: list[Content]) -> list[list[Content]]:
        """Cut bodies into batches."""
        if len(bodies) == 1 or sum([len(head) + len(body) for head, body in _pairs(bodies)]) <= MIXED_BYTES:
            return [bodies]
        middle = len(bodies) // 2
        return [*self.parts(bodies[:middle]), *self.parts(bodies[middle:])]


def _pairs(bodies: list[Content]) -> list[tuple[Raw, bytes]]:
    return cast("list[tuple[Raw, bytes]]", bodies)
