"""Fields of a request's body, as RabbitMQ's clients send them: "true" for true, "1" for 1, [] for an empty table."""

from typing import Any

from shardmq.management.web.errors import ApiError

Row = dict[str, Any]

INTEGER_DIGITS_MAX = 19


def flag(body: Row, name: str, default: bool = False) -> bool:
    """A field that is true or false.

    Raises:
        ApiError: it is neither.
    """
    match body.get(name):
        case None | "":
            return default
        case bool() as value:
            return value
        case "true":
            return True
        case "false":
            return False
        case other:
            raise ApiError.bad_request(f"{name} is {other!r:.40}; give true or false")


def number(body: Row, name: str, default: int | None = None) -> int:
    """A field that is a whole number.

    Raises:
        ApiError: it is none, or is missing and there is no default.
    """
    value = body.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, str) and len(value) <= INTEGER_DIGITS_MAX and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give a whole number")
    return value


def text(body: Row, name: str, default: str | None = None) -> str:
    """A field that is a text.

    Raises:
        ApiError: it is none, or is missing and there is no default.
    """
    value = body.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise ApiError.bad_request(f"key_missing: {name}")
    if not isinstance(value, str):
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give a text")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ApiError.bad_request(f"{name} has a character that is none")
    return value


def table(body: Row, name: str) -> Row:
    """A field that is a table; an empty list is an empty one, as PHP and old clients send it.

    Raises:
        ApiError: it is none.
    """
    value = body.get(name)
    if value is None or value in ([], ""):
        return {}
    if not isinstance(value, dict):
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give an object")
    return value


def words(body: Row, name: str) -> list[str]:
    """A field that is a list of words, or a text with commas between them.

    Raises:
        ApiError: it is neither.
    """
    value = body.get(name)
    if value is None:
        return []
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise ApiError.bad_request(f"{name} is {value!r:.40}; give a list of texts")
    return [word.strip() for word in value if word.strip()]
