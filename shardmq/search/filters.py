"""What a search looks for, as it travels between clients, gateways and shards."""

from typing import Annotated

from msgspec import Meta, Struct

TEXT_MAX = 1024
"""Characters of one filter; a request's frame holds them all."""

HEADERS_MAX = 16
"""Conditions on headers in one search."""

CONDITIONS_MAX = 4
"""Conditions on JSON values: each takes up to some milliseconds for a message, and nobody else is served meanwhile."""

Text = Annotated[str, Meta(max_length=TEXT_MAX)]
TimeMs = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DeathFilters(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters a search finds, by how they died the last time. What is left out holds for each.

    Attributes:
        reason: of which, as rejected, expired or maxlen.
        queue: in which.
        since_ms: then or later, in milliseconds since 1970; 0 for any time. One whose time is not known has none.
        until_ms: before then, likewise.
    """

    reason: Text = ""
    queue: Text = ""
    since_ms: TimeMs = 0
    until_ms: TimeMs = 0


class SearchFilters(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Which messages a search finds: those for which all of this holds. What is left out holds for every message.

    Attributes:
        key: the routing key; `*` in it stands for any text, `?` for one character, `[ab]` for one of these.
        headers: (name, value) of headers that are there; a value of None is any. Numbers and booleans compare as text.
        text: what is in the body, exactly, after it is decompressed.
        regex: a regular expression that is found in the body; MessagePack is shown to it as JSON.
        json: conditions on values in bodies of JSON or MessagePack: `$.order.id`, `$.items[*].price >= 9.5`.
        message_id: the publisher's id of the message, or else the broker's.
        since_ms: the broker received it then or later, in milliseconds since 1970; 0 for any time.
        until_ms: the broker received it before, likewise; 0 for any time.
        death: it is a dead letter of this kind; None for every message.
    """

    key: Text = ""
    headers: Annotated[tuple[tuple[Text, Text | None], ...], Meta(max_length=HEADERS_MAX)] = ()
    text: Text = ""
    regex: Text = ""
    json: Annotated[tuple[Text, ...], Meta(max_length=CONDITIONS_MAX)] = ()
    message_id: Text = ""
    since_ms: TimeMs = 0
    until_ms: TimeMs = 0
    death: DeathFilters | None = None
