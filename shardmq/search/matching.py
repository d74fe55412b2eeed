"""Filters made ready, and record batches looked through with them, message by message.

What is cheap comes first: a batch of 1,000 messages without the text anywhere in its bytes is passed over at once.
"""

import fnmatch
import re
from collections.abc import Iterator
from typing import Any, Final

from shardmq.errors import InvalidRequest
from shardmq.message import keyed_records
from shardmq.message.properties import Properties
from shardmq.message.record import unpack_apart, unpack_properties, unpack_raw
from shardmq.message.record_batch import AMQP, KEYED, RecordBatch, message_id
from shardmq.protocol.amqp import properties as property_lists
from shardmq.search.bodies import GZIP, Unreadable, decompressed, document, readable
from shardmq.search.deaths import Death, last_death
from shardmq.search.filters import DeathFilters, SearchFilters
from shardmq.search.json_paths import Condition
from shardmq.topology.expressions import read_expression

REGEX_SECONDS: Final = 0.005
"""Looking through one body with a regular expression: most take microseconds. A few, as `(a|aa)+$`, take twice as long
for every further character, and nobody else is served meanwhile."""

SLOW_MAX: Final = 3
"""Bodies that an expression takes too long for, before the search is refused."""

KNOWN_MAX: Final = 4096
"""Properties of which is remembered whether they fit; when there are more, all are forgotten."""

KNOWN_BYTES_MAX: Final = 1024
"""Longer properties are not remembered."""

_X_DEATH: Final = b"x-death"
_DEFLATE: Final = b"deflate"
_MSGPACK: Final = ("msgpack", "messagepack")
_NO_PROPERTIES: Final = Properties()


class Matcher:
    """Finds the messages that a search looks for.

    Args:
        filters: what is looked for.

    Attributes:
        cut: how many bodies were looked at in part only: they are too long, take too long, or are
            compressed and broken.

    Raises:
        InvalidRequest: a filter cannot be read.
    """

    def __init__(self, filters: SearchFilters) -> None:
        self._filters = filters
        self.cut = self._slow = 0
        self._key = re.compile(fnmatch.translate(filters.key)).match if filters.key else None
        self._headers = filters.headers
        self._text = filters.text.encode(errors="surrogatepass")
        self._regex = read_expression("the expression for bodies", filters.regex) if filters.regex else None
        self._conditions = [Condition(text) for text in filters.json]
        self._id = filters.message_id.encode(errors="surrogatepass")
        self._looks_inside = bool(self._text or self._regex or self._conditions)
        self._needed = [name.encode(errors="surrogatepass") for name, _ in self._headers]
        self._known: dict[bytes, bool] = {}
        self._deaths: dict[bytes, Death | None] = {}

    def may_be_in(self, batch: RecordBatch) -> bool:
        """Whether a batch may have a message that is looked for; False is certain."""
        filters = self._filters
        if batch.timestamp_ms < filters.since_ms or (filters.until_ms and batch.timestamp_ms >= filters.until_ms):
            return False
        if self._key is not None and not batch.flags & KEYED and not self._key(batch.routing_key):
            return False
        records = batch.records
        if self._id and self._id not in records and not self._is_numbered(batch):
            return False
        if not all(name in records for name in self._needed) or (filters.death is not None and _X_DEATH not in records):
            return False
        return not self._text or self._text in records or GZIP in records or _DEFLATE in records

    def look(self, batch: RecordBatch) -> Iterator[bool]:
        """Yield of each message, in order, whether it is one of those that are looked for."""
        properties, bodies, keys = _taken_apart(batch)
        read = _of_list if batch.flags & AMQP else _of_packed
        for place, (packed, body) in enumerate(zip(properties, bodies, strict=True)):
            yield (
                (keys is None or self._key is None or self._key(keys[place]) is not None)
                and (not self._id or self._has_id(batch, place, packed, read))
                and (self._filters.death is None or self._death(packed, read) is not None)
                and (not self._headers or self._has_headers(packed, read))
                and (not self._looks_inside or self._fits(packed, body, read))
            )

    def look_for_deaths(self, batch: RecordBatch) -> Iterator[Death | None]:
        """Yield of each message, in order, how it died, where it is a dead letter that is looked for."""
        properties, _, _ = _taken_apart(batch)
        read = _of_list if batch.flags & AMQP else _of_packed
        for packed, is_wanted in zip(properties, self.look(batch), strict=True):
            yield self._death(packed, read) if is_wanted else None

    def _death(self, packed: bytes, read: Any) -> Death | None:
        """How a message died, where that is as it should be."""
        if _X_DEATH not in packed:
            return None
        if packed in self._deaths:
            return self._deaths[packed]
        death, wanted = last_death(read(packed).headers), self._filters.death
        if death is not None and wanted is not None and not _is_so(death, wanted):
            death = None
        if len(packed) <= KNOWN_BYTES_MAX:
            if len(self._deaths) >= KNOWN_MAX:
                self._deaths.clear()
            self._deaths[packed] = death
        return death

    def _is_numbered(self, batch: RecordBatch) -> bool:
        """Whether the wanted id is one that the broker gave to a message of this batch."""
        origin, dash, serial = self._filters.message_id.partition("-")
        if not dash or origin != f"{batch.origin:016x}":
            return False
        try:
            return 0 <= int(serial, 16) - batch.serial < batch.count
        except ValueError:
            return False

    def _has_id(self, batch: RecordBatch, place: int, packed: bytes, read: Any) -> bool:
        if self._id in packed:
            return bool(read(packed).message_id == self._filters.message_id)
        if message_id(batch.origin, batch.serial + place) != self._filters.message_id:
            return False
        return read(packed).message_id is None

    def _has_headers(self, packed: bytes, read: Any) -> bool:
        fits = self._known.get(packed)
        if fits is None:
            headers = read(packed).headers or {}
            fits = all(
                name in headers and (value is None or _text_of(headers[name]) == value) for name, value in self._headers
            )
            if len(packed) <= KNOWN_BYTES_MAX:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[packed] = fits
        return fits

    def _fits(self, packed: bytes, body: bytes, read: Any) -> bool:
        """Whether a body is as it should be."""
        is_deflate = _DEFLATE in packed and read(packed).content_encoding == "deflate"
        opened, is_cut = decompressed(body, is_deflate=is_deflate)
        self.cut += is_cut
        if self._text and self._text not in opened:
            return False
        if self._regex is None and not self._conditions:
            return True
        is_msgpack = _is_msgpack(packed, read)
        if self._regex is not None and not self._is_found(readable(opened, is_msgpack=is_msgpack)):
            return False
        if not self._conditions:
            return True
        if is_cut:
            return False
        try:
            inside = document(opened, is_msgpack=is_msgpack)
        except Unreadable:
            return False
        return all(condition.holds(inside) for condition in self._conditions)

    def _is_found(self, text: str) -> bool:
        assert self._regex is not None
        try:
            return self._regex.search(text, timeout=REGEX_SECONDS) is not None
        except TimeoutError:
            self._slow += 1
            if self._slow < SLOW_MAX:
                self.cut += 1
                return False
            raise InvalidRequest(
                f"regular expression '{self._filters.regex[:64]}' takes more than {REGEX_SECONDS * 1000:.0f} ms for "
                f"each of {SLOW_MAX} messages; write one with fewer repetitions inside repetitions"
            ) from None


def _taken_apart(batch: RecordBatch) -> tuple[list[bytes], list[bytes], list[str] | None]:
    """Packed properties and bodies of a batch's messages, and their keys where each has its own."""
    if batch.flags & KEYED:
        return keyed_records.contents(batch)
    if batch.flags & AMQP:
        pairs = unpack_raw(batch.records, batch.count)
        return [raw for raw, _ in pairs], [body for _, body in pairs], None
    apart = unpack_apart(batch.records, batch.count)
    return [bytes(packed) for packed, _ in apart], [body for _, body in apart], None


def _is_so(death: Death, wanted: DeathFilters) -> bool:
    """Whether a message died as it should have."""
    if (wanted.reason and death.reason != wanted.reason) or (wanted.queue and death.queue != wanted.queue):
        return False
    if not wanted.since_ms and not wanted.until_ms:
        return True
    when = death.time_ms
    return when is not None and when >= wanted.since_ms and (not wanted.until_ms or when < wanted.until_ms)


def _of_list(raw: bytes) -> Properties:
    return property_lists.decode(raw)


def _of_packed(packed: bytes) -> Properties:
    return unpack_properties(packed) or _NO_PROPERTIES


def _is_msgpack(packed: bytes, read: Any) -> bool:
    """Whether a publisher says that the body is MessagePack, as in application/x-msgpack."""
    if not any(name.encode() in packed for name in _MSGPACK):
        return False
    return any(name in (read(packed).content_type or "") for name in _MSGPACK)


def _text_of(value: Any) -> str:
    """A header's value as it is written in a filter: as JSON writes it, but text without quotation marks."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "null" if value is None else str(value)
