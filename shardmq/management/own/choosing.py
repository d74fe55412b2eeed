"""Which dead letters a request means."""

from typing import Final

from shardmq.management.dead_letters.chosen import Ages, Chosen, Wanted
from shardmq.management.web.call import Call, Row
from shardmq.management.web.errors import ApiError

DIGITS_MAX: Final = 12
"""Of an age in seconds."""

AGES: Final = ("older_than", "newer_than")
"""The names of the ages."""


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


def text_in(body: Row, name: str) -> str:
    """A text of a body, "" where there is none.

    Raises:
        ApiError: it is something else.
    """
    value = body.get(name, "")
    if not isinstance(value, str):
        raise ApiError.bad_request(f"{name} is {value!r}; give a text")
    return value
