"""Publishes whose messages differ in what the broker looks at: cut into parts that go the same way on the same terms.

    records of one publish:   a a b b b c a      a, b, c: priority, time to live, queues
    parts:                   └─┴─┘└─┴─┴─┘└─┘└─┘  in order; each is a run of its own

Messages without properties, and those whose properties mean nothing to the broker, never come here: their key alone
settles where they go, and a publish is one part.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from shardmq.errors import PreconditionFailed, RequestError
from shardmq.gateway.hub import Hub, Plan
from shardmq.limits import DELAY_MS_MAX, NAME_BYTES_MAX
from shardmq.records import Properties, Record, ends, pack

CC: Final = "CC"
BCC: Final = "BCC"
"""Headers with more routing keys (https://www.rabbitmq.com/docs/sender-selected). Nobody sees the second."""

CC_KEYS_MAX: Final = 1024
"""Routing keys of one message: routing it stays a matter of milliseconds."""

PRIORITY_MAX: Final = 255
"""AMQP's priority is an octet."""

IMPERSONATOR: Final = "impersonator"
"""The tag of users that may set a user_id other than their own (https://www.rabbitmq.com/docs/validated-user-id)."""


class Part(NamedTuple):
    """`messages` messages of a publish, from number `offset` on.

    Attributes:
        plan: where they go, which may be nowhere.
    """

    offset: int
    messages: int
    records: bytes
    priority: int
    ttl_ms: int | None
    plan: Plan


class Publication(NamedTuple):
    """A publish, as far as its messages have it in common.

    Attributes:
        user: who publishes.
    """

    hub: Hub
    vhost: str
    user: str
    exchange: str
    key: str


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


def cut(publication: Publication, packed: bytes, count: int, records: Sequence[Record] | None) -> list[Part]:
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
        return [Part(0, count, packed, 0, None, plan)]
    parts: list[Part] = []
    pieces: list[bytes] = []
    begun = begin = copied = 0  # the message, and the byte, that the part begins with; bytes before `copied` are in it
    terms: tuple[int, int | None, Plan] | None = None
    for place, (record, end) in enumerate(zip(records, ends(packed, count), strict=True)):
        properties = record.properties
        own = (0, None, _plan(publication, None)) if properties is None else _terms(publication, properties)
        if own != terms:
            if terms is not None:
                parts.append(Part(begun, place - begun, b"".join([*pieces, packed[copied:begin]]), *terms))
            pieces, begun, copied, terms = [], place, begin, own
        if properties is not None and properties.headers is not None and BCC in properties.headers:
            pieces += [packed[copied:begin], _without_bcc(properties, properties.headers, record.body)]
            copied = end
        begin = end
    assert terms is not None
    parts.append(Part(begun, count - begun, b"".join([*pieces, packed[copied:begin]]), *terms))
    return parts


def _terms(publication: Publication, properties: Properties) -> tuple[int, int | None, Plan]:
    """A message's priority, its time to live, and where it goes."""
    priority = properties.priority
    if priority is not None and not 0 <= priority <= PRIORITY_MAX:
        raise PreconditionFailed(f"priority {priority} is not from 0 to {PRIORITY_MAX}")
    user = properties.user_id
    if user is not None and user != publication.user:
        _check_impersonation(publication, user)
    return priority or 0, ttl_ms_of(properties.expiration), _plan(publication, properties)


def _plan(publication: Publication, properties: Properties | None) -> Plan:
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
    if ttl_ms > DELAY_MS_MAX:
        raise PreconditionFailed(f"invalid expiration '{expiration}': the longest is {DELAY_MS_MAX} ms")
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


def _check_impersonation(publication: Publication, user: str) -> None:
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
