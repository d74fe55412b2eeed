"""Publishes whose messages differ in what the broker looks at: cut into parts that go the same way on the same terms.

    records of one publish:   a a b b b c a      a, b, c: priority, time to live, queues
    parts:                   └─┴─┘└─┴─┴─┘└─┘└─┘  in order; each is a run of its own

Messages without properties, and those whose properties mean nothing to the broker, never come here: their key alone
settles where they go, and a publish is one part. A priority counts where a queue has priorities; where all have, they
are sorted by it first, as those queues would do: cut where it changes, parts would be of one message each. Sorted, they
have other numbers of their producer than they came with, which is of no consequence where they can only come again all
together.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from shardmq.errors import PreconditionFailed, RequestError
from shardmq.gateway.state.gateway import GatewayState
from shardmq.gateway.state.routes import Route
from shardmq.limits import LIFE_MS_MAX, NAME_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import Record, pack
from shardmq.message.record_batch import record_ends

SplitKey = tuple[int, int | None, Route]
"""Priority, time to live in ms, and where to."""

_NO_PROPERTIES: Final[tuple[int | None, str | None, str | None]] = (None, None, None)

CC: Final = "CC"
BCC: Final = "BCC"
"""Headers with more routing keys (https://www.rabbitmq.com/docs/sender-selected). Nobody sees the second."""

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
        plan: where they go, which may be nowhere.
        certain: how many of the publish's first messages are in the parts before it: `offset`, or 0 if they are sorted.
    """

    offset: int
    messages: int
    records: bytes
    priority: int
    ttl_ms: int | None
    plan: Route
    certain: int = 0


class PublishSplitter(NamedTuple):
    """A publish, as far as its messages have it in common.

    Attributes:
        user: who publishes.
        may_sort: whether a message may get the number of another one in its frame: nobody sends it again in another.
    """

    hub: GatewayState
    vhost: str
    user: str
    exchange: str
    key: str
    may_sort: bool


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


def cut(publication: PublishSplitter, packed: bytes, count: int, records: Sequence[Record] | None) -> list[PublishPart]:
    """The parts of a publish, in order.

    Args:
        publication: what it is.
        packed: its records.
        count: how many.
        records: them decoded, where some have properties.

    Raises:
        PreconditionFailed: a property that has no meaning, or is not the user's to set.
        NotFound: no such exchange.
        AccessRefused: the exchange is internal.
    """
    if records is None:
        plan = publication.hub.plan_message(publication.vhost, publication.exchange, (publication.key,), None)
        return [PublishPart(0, count, packed, 0, None, plan)]
    terms = _terms_of_all(publication, records)
    if terms.count(terms[0]) == count and not any(map(_has_bcc, records)):
        return [PublishPart(0, count, packed, *terms[0])]
    members = list(zip(terms, _pieces(packed, records), strict=True))
    is_sorted = publication.may_sort and all(plan.sorts for _, _, plan in terms)
    if is_sorted:
        members.sort(key=_urgency)
    parts: list[PublishPart] = []
    offset = 0
    for (priority, ttl_ms, plan), neighbours in groupby(members, key=itemgetter(0)):
        pieces = [piece for _, piece in neighbours]
        certain = 0 if is_sorted else offset
        parts.append(PublishPart(offset, len(pieces), b"".join(pieces), priority, ttl_ms, plan, certain))
        offset += len(pieces)
    return parts


def _urgency(member: tuple[SplitKey, bytes]) -> int:
    return -member[0][0]


def _pieces(packed: bytes, records: Sequence[Record]) -> list[bytes]:
    """Each message's bytes, as they are stored."""
    pieces = []
    begin = 0
    for record, end in zip(records, record_ends(packed, len(records)), strict=True):
        properties = record.properties
        if properties is not None and properties.headers is not None and BCC in properties.headers:
            pieces.append(_without_bcc(properties, properties.headers, record.body))
        else:
            pieces.append(packed[begin:end])
        begin = end
    return pieces


def _has_bcc(record: Record) -> bool:
    properties = record.properties
    return properties is not None and properties.headers is not None and BCC in properties.headers


def _terms_of_all(publication: PublishSplitter, records: Sequence[Record]) -> list[SplitKey]:
    """The terms of every message. Of those without headers, all with the same priority and time are on the same."""
    hub = publication.hub
    shared: dict[tuple[int | None, str | None, str | None], SplitKey] = {}
    is_shared = hub.plan(publication.vhost, publication.exchange, publication.key) is not None
    terms: list[SplitKey] = []
    keys = 0
    for record in records:
        properties = record.properties
        if properties is None:
            key = _NO_PROPERTIES
        elif is_shared and properties.headers is None:
            key = (properties.priority, properties.expiration, properties.user_id)
        else:
            keys += _key_count(properties)
            if keys > KEYS_MAX:
                raise PreconditionFailed(
                    f"over {KEYS_MAX} routing keys in headers '{CC}' and '{BCC}' of a publish; publish fewer at a time"
                )
            terms.append(terms_of(publication, properties))
            continue
        own = shared.get(key)
        if own is None:
            own = shared[key] = terms_of(publication, properties)
        terms.append(own)
    return terms


def _key_count(properties: Properties) -> int:
    """How many routing keys CC and BCC hold, should they hold any."""
    headers = properties.headers or {}
    return sum([len(keys) for keys in (headers.get(CC), headers.get(BCC)) if isinstance(keys, list)])


def terms_of(publication: PublishSplitter, properties: Properties | None) -> SplitKey:
    """A message's priority, as far as it counts, its time to live, and where it goes."""
    plan = _plan(publication, properties)
    if properties is None:
        return 0, None, plan
    priority = properties.priority
    if priority is not None and not 0 <= priority <= PRIORITY_MAX:
        raise PreconditionFailed(f"priority {priority} is not from 0 to {PRIORITY_MAX}")
    user = properties.user_id
    if user is not None and user != publication.user:
        _check_impersonation(publication, user)
    return min(priority or 0, plan.levels), ttl_ms_of(properties.expiration), plan


def _plan(publication: PublishSplitter, properties: Properties | None) -> Route:
    hub, vhost, exchange, key, headers = publication.hub, publication.vhost, publication.exchange, publication.key, None
    if properties is not None:
        headers = properties.headers
    more = (*routing_keys(headers, CC), *routing_keys(headers, BCC)) if headers is not None else ()
    if not more:
        plan = hub.plan(vhost, exchange, key)
        if plan is not None:
            return plan
    return hub.plan_message(vhost, exchange, (key, *more), properties)


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
    """The routing keys in a header, CC or BCC.

    Raises:
        PreconditionFailed: it holds something else.
    """
    keys = headers.get(name, [])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PreconditionFailed(f"header '{name}' has to be an array of routing keys, each a string")
    if len(keys) > CC_KEYS_MAX:
        raise PreconditionFailed(f"header '{name}' has {len(keys)} routing keys; the limit is {CC_KEYS_MAX}")
    for key in keys:
        if len(key.encode()) > NAME_BYTES_MAX:
            raise PreconditionFailed(f"routing key '{key[:32]}…' in header '{name}' is over {NAME_BYTES_MAX} bytes")
    return keys


def _check_impersonation(publication: PublishSplitter, user: str) -> None:
    known = publication.hub.topology.users.get(publication.user)
    if known is None or IMPERSONATOR not in known.tags:
        raise PreconditionFailed(
            f"user_id property set to '{user}' but authenticated user was '{publication.user}'; set your own, or none"
        )


def _without_bcc(properties: Properties, headers: dict[str, Any], body: bytes) -> bytes:
    rest = {name: value for name, value in headers.items() if name != BCC}
    try:
        return pack(msgspec.structs.replace(properties, headers=rest), body)
    except RecursionError as fault:  # as deep as could just be read
        raise RequestError("headers nest too deep to be passed on without BCC; make them flatter") from fault
