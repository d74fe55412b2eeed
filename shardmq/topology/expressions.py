"""Regular expressions that users give: permissions, policies, filters. Some are none, some take any time to match."""

import warnings
from functools import lru_cache
from typing import Final

import regex

from shardmq.errors import InvalidRequest

EXPRESSION_MAX: Final = 4096
"""Characters of an expression: each is matched against names, and travels to every gateway."""

MATCH_SECONDS: Final = 0.05
"""Matching an expression with a name may take this long: most take a few microseconds, and a few, as `(a+)+$`, twice as
long for every further character. While one is matched, nobody else is served."""


class Expression:
    """A regular expression, which is found anywhere in a name; "" is found in "" alone.

    One that took too long once is found nowhere from then on, and so is one that this process cannot compile: the
    coordinator, which looked at it first, has more room on its stack, and may have had another version of `regex`.

    Attributes:
        is_too_slow: whether that has happened.
    """

    __slots__ = ("_pattern", "is_too_slow")

    def __init__(self, expression: str) -> None:
        self.is_too_slow = False
        compiled = _compiled(expression)
        if isinstance(compiled, Exception):
            self.is_too_slow = True
        else:
            self._pattern = compiled

    def is_in(self, name: str) -> bool:
        """Whether it is found in a name."""
        if self.is_too_slow:
            return False
        try:
            return self._pattern.search(name, timeout=MATCH_SECONDS) is not None
        except TimeoutError:
            self.is_too_slow = True
            return False


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Expression:
    """The expression, compiled once."""
    return Expression(expression)


def read_expression(what: str, expression: str, flags: int = 0) -> "regex.Pattern[str]":
    """Compile what a user gave as an expression.

    Args:
        what: it, for the error, such as "the write expression".
        expression: as it was given.
        flags: as `regex.compile` takes them.

    Raises:
        InvalidRequest: it is no regular expression, or too long.
    """
    if len(expression) > EXPRESSION_MAX:
        raise InvalidRequest(f"{what} is over {EXPRESSION_MAX} characters; write a shorter one")
    compiled = _compiled(expression, flags)
    if isinstance(compiled, Exception):
        raise InvalidRequest(f"{what} '{expression[:64]}' is no regular expression: {compiled}") from compiled
    return compiled


def check_expression(what: str, expression: str) -> None:
    """Make sure that an expression is one.

    Args:
        what: it, for the error.
        expression: as it was given.

    Raises:
        InvalidRequest: it is no regular expression, or too long.
    """
    read_expression(what, expression)


def expression_fault(expression: str) -> Exception | None:
    """What keeps this from being a regular expression; None where it is one."""
    compiled = _compiled(expression)
    return compiled if isinstance(compiled, Exception) else None


def _compiled(expression: str, flags: int = 0) -> "regex.Pattern[str] | Exception":
    """The pattern, or what keeps this from being one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of syntax that may mean something else in a later Python
        try:
            return regex.compile(expression, flags)
        except Exception as fault:  # noqa: BLE001  beside its own errors it has ValueError for `(?au)`, and others
            return fault
