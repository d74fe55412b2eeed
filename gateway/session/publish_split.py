"""A publish whose messages differ in what the broker looks at, cut into parts that go the same way.

    records of one publish:   a a b b b c a      a, b, c: priority, time to live, queues
    parts:                   └─┴─┘└─┴─┴─┘└─┘└─┘  in order; each is a record batch of its own

Messages without properties, and those whose properties mean nothing to the broker, never come here: their key alone
settles where they go, and a publish is one part. A priority counts where a queue has priorities; where all have, they
are sorted by it first, as those queues would do: cut where it changes, parts would be of one message each. Sorted, they
have other numbers of their producer than they came with, which is of no consequence where they can only come again all
together.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from shardmq.errors import PreconditionFailed, RequestError
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.routes import Route, Routes
from shardmq.limits import LIFE_MS_MAX, NAME_BYTES_MAX
from shardmq.message.keyed_records import with_key, without_keys
from shardmq.message.properties import Properties
from shardmq.message.record import Record, pack, pieces
from shardmq.protocol.native.operations.basic import BasicPublish
from shardmq.topology.exchanges.partition import Partition
from shardmq.topology.parameters.shovel import RUNNER

SplitKey = tuple[int, int | None, Route]
"""Priority, time to live in ms, and where to."""

_NO_PROPERTIES: Final[tuple[int | None, str | None, str | None]] = (None, None, None)

CC: Final = "CC"
BCC: Final = "BCC"
"""Headers with more routing keys (https://www.rabbitmq.com/docs/sender-selected). BCC is removed from the message."""

CC_KEYS_MAX: Final = 1024
"""Routing keys of one message: routing it stays a matter of milliseconds."""

KEYS_MAX: Final = 16_384
"""Routing keys of CC and BCC of all messages of one publish: past topic exchanges with many bindings, a tenth of a
second, in which nobody else is served."""

PRIORITY_MAX: Final = 255
"""AMQP's priority is an octet."""

IMPERSONATOR: Final = "impersonator"
"""The tag of users that may set a user_id other than their own (https://www.rabbitmq.com/docs/validated-user-id)."""


class PublishPart(NamedTuple):
    """`messages` messages of a publish; the parts before it have `offset`.

    Attributes:
        route: where they go, which may be nowhere.
        certain: how many of the publish's first messages are in the parts before it: `offset`, or 0 if they are sorted.
        key: of all of its messages; None where each has its own.
    """

    offset: int
    messages: int
    records: bytes
    priority: int
    ttl_ms: int | None
    route: Route
    certain: int = 0
    key: str | None = ""


class PublishSplitter(NamedTuple):
    """Splits a publish; what its messages have in common.

    Attributes:
        state: of the gateway.
        routes: of its topology, or of the transaction.
        vhost: the publisher's virtual host.
        user: who publishes.
        exchange: where to.
        key: with which routing key.
        may_sort: whether a message may get the number of another one in its frame: nobody sends it again in another.
        turn: whose turn it is, where topics take turns.
    """

    state: GatewayState
    routes: Routes
    vhost: str
    user: str
    exchange: str
    key: str
    may_sort: bool
    turn: int = 0

    def split_in_turns(
        self, publish: BasicPublish, records: Sequence[Record] | None, turns: Sequence[tuple[int, int, int]]
    ) -> list[PublishPart]:
        """The parts of a publish whose messages take turns (`turns_of`), in order.

        Raises:
            RequestError: as `split`.
        """
        if len(turns) == 1:
            return self._replace(turn=turns[0][2]).split(publish.records, publish.count, records)
        cut = [*pieces(publish.records, publish.count)]
        parts: list[PublishPart] = []
        for start, end, turn in turns:
            some = None if records is None else records[start:end]
            found = self._replace(turn=turn).split(b"".join(cut[start:end]), end - start, some)
            parts += [part._replace(offset=part.offset + start, certain=part.offset + start) for part in found]
        return parts

    def split(self, packed: bytes, count: int, records: Sequence[Record] | None) -> list[PublishPart]:
        """The parts of the publish, in order.

        Args:
            packed: its records.
            count: how many.
            records: them decoded, where some have properties.

        Raises:
            PreconditionFailed: a property that has no meaning, or is not the user's to set.
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        if records is None:
            route = self.routes.of_message(self.vhost, self.exchange, (self.key,), None, self.turn)
            return [PublishPart(0, count, packed, 0, None, route)]
        by_priority = self._by_priority(packed, records)
        if by_priority is not None:
            return by_priority
        keys = self._keys_of(records)
        if keys.count(keys[0]) == count and not any(map(_has_bcc, records)):
            return [PublishPart(0, count, packed, *keys[0])]
        members = list(zip(keys, _pieces(packed, records), strict=True))
        is_sorted = self.may_sort and all(route.sorts for _, _, route in keys)
        if is_sorted:
            members.sort(key=_urgency)
        parts: list[PublishPart] = []
        offset = 0
        for (priority, ttl_ms, route), neighbours in groupby(members, key=itemgetter(0)):
            going = [piece for _, piece in neighbours]
            certain = 0 if is_sorted else offset
            parts.append(PublishPart(offset, len(going), b"".join(going), priority, ttl_ms, route, certain))
            offset += len(going)
        return parts

    def split_keyed(
        self, publish: BasicPublish, keys: Sequence[str], records: Sequence[Record] | None
    ) -> tuple[list[PublishPart], int]:
        """The parts of a publish whose messages have keys of their own, and what to add to their numbers.

        For a topic they are sorted by partition, each key's in order; for other exchanges only neighbours go together.

        Args:
            publish: it.
            keys: of its messages.
            records: them decoded, where some have properties.

        Raises:
            RequestError: as `split`.
        """
        cut: list[bytes] = [*pieces(publish.records, publish.count)]
        topic = self.routes.router.topic(self.vhost, self.exchange)
        if topic is not None and (records is None or is_uniform(records)):
            return self._by_partition(topic, keys, cut), topic.count * publish.count
        parts: list[PublishPart] = []
        offset = 0
        for (priority, ttl_ms, route), run in groupby(self._keyed(cut, keys, records), key=itemgetter(0)):
            members = [(key, piece) for _, key, piece in run]
            packed, common = _packed([own for own, _ in members], [piece for _, piece in members])
            parts.append(PublishPart(offset, len(members), packed, priority, ttl_ms, route, offset, common))
            offset += len(members)
        return parts, 0

    def _by_partition(self, topic: Partition, keys: Sequence[str], cut: list[bytes]) -> list[PublishPart]:
        """The parts of a publish to a topic."""
        numbers = topic.numbers_of(keys, self.turn)
        records_of: dict[int, list[bytes]] = {number: [] for number in sorted(set(numbers))}
        keys_of: dict[int, list[str]] = {number: [] for number in records_of}
        for number, key, piece in zip(numbers, keys, cut, strict=True):
            records_of[number].append(piece)
            keys_of[number].append(key)
        parts: list[PublishPart] = []
        offset = 0
        for number, records in records_of.items():
            route = self.routes.of_message(self.vhost, self.exchange, (keys_of[number][0],), None, self.turn)
            packed, common = _packed(keys_of[number], records)
            parts.append(PublishPart(offset, len(records), packed, 0, None, route, 0, common))
            offset += len(records)
        return parts

    def _keyed(
        self, cut: list[bytes], keys: Sequence[str], records: Sequence[Record] | None
    ) -> Iterator[tuple[SplitKey, str, bytes]]:
        """How each message with a key of its own goes, its key, and itself as it is stored."""
        if records is None:
            for key, piece in zip(keys, cut, strict=True):
                yield self._replace(key=key).key_of(None), key, piece
            return
        routing_keys_met = 0
        for key, record, piece in zip(keys, records, cut, strict=True):
            properties, going = record.properties, piece
            if properties is not None:
                routing_keys_met += _checked_count(properties, routing_keys_met)
                if _has_bcc(record):
                    going = with_key(_without_bcc(properties, properties.headers or {}, record.body), key)
            yield self._replace(key=key).key_of(properties), key, going

    def _by_priority(self, packed: bytes, records: Sequence[Record]) -> list[PublishPart] | None:
        """The parts of a publish whose messages differ in priority alone, where queues sort them; None for others.

        It takes 0.25 µs a message, and what goes for all others 0.6.
        """
        route = self.routes.find(self.vhost, self.exchange, self.key) if self.may_sort else None
        if route is None or not route.sorts:
            return None
        by_level: dict[int, list[bytes]] = {}
        by_priority: dict[int | None, list[bytes]] = {}  # some share a level
        for record, piece in zip(records, pieces(packed, len(records)), strict=True):
            properties = record.properties
            if properties is None:
                priority = None
            elif properties.headers is None and properties.expiration is None and properties.user_id is None:
                priority = properties.priority
            else:
                return None
            group = by_priority.get(priority)
            if group is None:
                level = self.key_of(properties)[0]
                group = by_priority[priority] = by_level.setdefault(level, [])
            group.append(piece)
        parts: list[PublishPart] = []
        offset = 0
        for level in sorted(by_level, reverse=True):
            going = by_level[level]
            parts.append(PublishPart(offset, len(going), b"".join(going), level, None, route))
            offset += len(going)
        return parts

    def key_of(self, properties: Properties | None) -> SplitKey:
        """A message's priority, as far as it counts, its time to live, and its route.

        Raises:
            PreconditionFailed: a property that has no meaning, or is not the user's to set.
            NotFound: no such exchange.
            AccessRefused: the exchange is internal.
        """
        route = self._route(properties)
        if properties is None:
            return 0, None, route
        priority = properties.priority
        if priority is not None and not 0 <= priority <= PRIORITY_MAX:
            raise PreconditionFailed(f"priority {priority} is not from 0 to {PRIORITY_MAX}")
        user = properties.user_id
        if user is not None and user != self.user:
            self._check_impersonation(user)
        return min(priority or 0, route.levels), ttl_ms_of(properties.expiration), route

    def _keys_of(self, records: Sequence[Record]) -> list[SplitKey]:
        """The key of every message. Those without headers share it where priority, expiration and user are the same."""
        shared: dict[tuple[int | None, str | None, str | None], SplitKey] = {}
        is_shared = self.routes.find(self.vhost, self.exchange, self.key) is not None
        keys: list[SplitKey] = []
        routing_keys_met = 0
        for record in records:
            properties = record.properties
            if properties is None:
                facts = _NO_PROPERTIES
            elif is_shared and properties.headers is None:
                facts = (properties.priority, properties.expiration, properties.user_id)
            else:
                routing_keys_met += _checked_count(properties, routing_keys_met)
                keys.append(self.key_of(properties))
                continue
            key = shared.get(facts)
            if key is None:
                key = shared[facts] = self.key_of(properties)
            keys.append(key)
        return keys

    def _route(self, properties: Properties | None) -> Route:
        vhost, exchange, key = self.vhost, self.exchange, self.key
        headers = None if properties is None else properties.headers
        more = (*routing_keys(headers, CC), *routing_keys(headers, BCC)) if headers is not None else ()
        if not more:
            route = self.routes.find(vhost, exchange, key)
            if route is not None:
                return route if route.turns is None else route.turns.at(self.turn)
        else:
            self.state.permissions(self.user, vhost).check_topics("write", exchange, more)
        return self.routes.of_message(vhost, exchange, (key, *more), properties, self.turn)

    def _check_impersonation(self, user: str) -> None:
        if self.user == RUNNER:
            return
        publisher = self.state.topology.users.get(self.user)
        if publisher is None or IMPERSONATOR not in publisher.tags:
            raise PreconditionFailed(
                f"user_id property set to '{user}' but authenticated user was '{self.user}'; set your own, or none"
            )


def is_uniform(records: Sequence[Record]) -> bool:
    """Whether no message has properties that the broker looks at, where the routing key settles the rest."""
    for record in records:
        properties = record.properties
        if properties is not None and (
            properties.priority is not None
            or properties.expiration is not None
            or properties.user_id is not None
            or (properties.headers is not None and (CC in properties.headers or BCC in properties.headers))
        ):
            return False
    return True


def _urgency(member: tuple[SplitKey, bytes]) -> int:
    return -member[0][0]


def _pieces(packed: bytes, records: Sequence[Record]) -> list[bytes]:
    """Each message's bytes, as they are stored."""
    cut: list[bytes] = [*pieces(packed, len(records))]
    for place, record in enumerate(records):
        properties = record.properties
        if properties is not None and properties.headers is not None and BCC in properties.headers:
            cut[place] = _without_bcc(properties, properties.headers, record.body)
    return cut


def _has_bcc(record: Record) -> bool:
    properties = record.properties
    return properties is not None and properties.headers is not None and BCC in properties.headers


def _checked_count(properties: Properties, before: int) -> int:
    """How many routing keys CC and BCC hold, should they hold any; `before` were in messages before.

    Raises:
        PreconditionFailed: they are too many.
    """
    headers = properties.headers or {}
    found = sum([len(keys) for keys in (headers.get(CC), headers.get(BCC)) if isinstance(keys, list)])
    if before + found > KEYS_MAX:
        raise PreconditionFailed(
            f"over {KEYS_MAX} routing keys in headers '{CC}' and '{BCC}' of a publish; publish fewer at a time"
        )
    return found


def _packed(keys: Sequence[str], records: list[bytes]) -> tuple[bytes, str | None]:
    """Records with keys back to back, and None; without the keys, and the key, where all have the same one."""
    key = keys[0]
    if keys.count(key) == len(keys):
        return b"".join(without_keys(b"".join(records), len(records))), key
    return b"".join(records), None


def ttl_ms_of(expiration: str | None) -> int | None:
    """How long a message may wait, by its property `expiration`.

    Raises:
        PreconditionFailed: it is no decimal number of milliseconds.
    """
    if expiration is None:
        return None
    if not (expiration.isascii() and expiration.isdigit() and len(expiration) <= 20):  # int() is quadratic
        raise PreconditionFailed(f"invalid expiration '{expiration[:40]}': expected are milliseconds in decimal digits")
    ttl_ms = int(expiration)
    if ttl_ms > LIFE_MS_MAX:
        raise PreconditionFailed(f"invalid expiration '{expiration}': the longest is {LIFE_MS_MAX} ms")
    return ttl_ms


def routing_keys(headers: dict[str, Any], name: str) -> list[str]:
    """The routing keys in a header, CC or BCC. What is no text is passed over (rabbit_basic:header_routes).

    Raises:
        PreconditionFailed: it is no array, or has too many or too long ones.
    """
    found = headers.get(name, [])
    if not isinstance(found, list):
        raise PreconditionFailed(f"header '{name}' has to be an array of routing keys, each a string")
    keys = [key for key in found if isinstance(key, str)]
    if len(keys) > CC_KEYS_MAX:
        raise PreconditionFailed(f"header '{name}' has {len(keys)} routing keys; the limit is {CC_KEYS_MAX}")
    for key in keys:
        if len(key.encode()) > NAME_BYTES_MAX:
            raise PreconditionFailed(f"routing key '{key[:32]}…' in header '{name}' is over {NAME_BYTES_MAX} bytes")
    return keys


def _without_bcc(properties: Properties, headers: dict[str, Any], body: bytes) -> bytes:
    rest = {name: value for name, value in headers.items() if name != BCC}
    try:
        return pack(msgspec.structs.replace(properties, headers=rest), body)
    except RecursionError as fault:  # as deep as could just be read
        raise RequestError("headers nest too deep to be passed on without BCC; make them flatter") from fault
