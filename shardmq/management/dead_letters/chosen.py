"""What messages died of, where and when; and which dead letters are meant."""

import time
from typing import Any

import msgspec

from shardmq.client.api.message import Message
from shardmq.message.json_values import plain

Row = dict[str, Any]


class Wanted(msgspec.Struct, frozen=True):
    """Which messages are wanted: each text is a part of what it is compared with; "" is in everything."""

    key: str = ""
    header: str = ""
    text: str = ""

    def has(self, message: Message) -> bool:
        """Whether a message is one of them."""
        if self.key and self.key not in message.routing_key:
            return False
        if self.header and not self._in_headers(message):
            return False
        return not self.text or self.text.encode() in bytes(message.body)

    def _in_headers(self, message: Message) -> bool:
        headers = plain(message.properties.headers or {})
        name, equals, value = self.header.partition("=")
        if equals:
            return name in headers and str(headers[name]) == value
        return any(self.header in name or self.header in str(value) for name, value in headers.items())


class Ages(msgspec.Struct, frozen=True):
    """How long ago messages died, in seconds; None is any."""

    older_than: int | None = None
    newer_than: int | None = None

    def has(self, death: Row) -> bool:
        """Whether a death is so old; one whose time is not known has no age."""
        if self.older_than is None and self.newer_than is None:
            return True
        when = time_of(death)
        if when is None:
            return False
        age = time.time() - when
        return (self.older_than is None or age >= self.older_than) and (
            self.newer_than is None or age < self.newer_than
        )


class Chosen(msgspec.Struct, frozen=True):
    """Which dead letters are meant: what they hold, what they died of, where, and when; "" is any."""

    content: Wanted = Wanted()
    reason: str = ""
    source: str = ""
    ages: Ages = Ages()

    def has(self, message: Message) -> bool:
        """Whether a message is one of them; a message that never died is none."""
        death = last_death(message)
        if death is None or (self.reason and death.get("reason") != self.reason):
            return False
        if (self.source and death.get("queue") != self.source) or not self.ages.has(death):
            return False
        return self.content.has(message)


def last_death(message: Message) -> Row | None:
    """The most recent entry of `x-death`; None where there is none that names a queue."""
    all_of_them = deaths(message)
    death = all_of_them[0] if all_of_them else None
    return death if isinstance(death, dict) and isinstance(death.get("queue"), str) else None


def deaths(message: Message) -> list[Any]:
    """All entries of `x-death`, most recent first."""
    found = (message.properties.headers or {}).get("x-death")
    return found if isinstance(found, list) else []


def time_of(death: Row) -> int | None:
    """When it was, in seconds since 1970; None where that is not known."""
    when = plain(death.get("time"))
    return when if isinstance(when, int) and not isinstance(when, bool) else None
