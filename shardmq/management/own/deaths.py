"""What messages died of, where and when; and which dead letters are meant."""

import time
from typing import Any, Final

import msgspec

from shardmq.client.api.message import Message
from shardmq.management.own.messages import Wanted
from shardmq.management.web.call import Call, Row
from shardmq.management.web.encoding import plain
from shardmq.management.web.errors import ApiError

DIGITS_MAX: Final = 12
"""Of an age in seconds."""


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


def chosen_by_query(call: Call) -> Chosen:
    """Which dead letters a request for a list means.

    Raises:
        ApiError: an age is no number.
    """
    ages = []
    for name in AGES:
        text = call.query.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
            raise ApiError.bad_request(f"{name} is '{text[:40]}'; give seconds, a whole number")
        ages.append(int(text) if text else None)
    return Chosen(Wanted(), call.query.get("reason", ""), call.query.get("source", ""), Ages(*ages))


def chosen_by_body(body: Row) -> Chosen:
    """Which dead letters the body of a request means.

    Raises:
        ApiError: a field has another type.
    """
    content = Wanted(text_in(body, "key"), text_in(body, "header"), text_in(body, "text"))
    ages = []
    for name in AGES:
        value = body.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ApiError.bad_request(f"{name} is {value!r}; give seconds, a whole number, or none")
        ages.append(value)
    return Chosen(content, text_in(body, "reason"), text_in(body, "source"), Ages(*ages))


AGES: Final = ("older_than", "newer_than")
"""The names of the ages."""


def text_in(body: Row, name: str) -> str:
    """A text of a body, "" where there is none.

    Raises:
        ApiError: it is something else.
    """
    value = body.get(name, "")
    if not isinstance(value, str):
        raise ApiError.bad_request(f"{name} is {value!r}; give a text")
    return value
