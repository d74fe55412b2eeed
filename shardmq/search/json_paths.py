"""Conditions on values inside a document: a path of RFC 9535 without filters and functions, and a comparison.

    $.order.id                  the value is there
    $.items[*].price >= 9.5     one of the items has such a price
    $..sku == "A-7"             anywhere

The paths of RFC 9535 in full can take any time: filters hold regular expressions, and descents inside descents
multiply. Here the values that are looked at are counted.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import regex

from shardmq.errors import InvalidRequest

VALUES_MAX: Final = 5000
"""Values looked at for one condition in one document: a millisecond or two. What lies behind them is not found."""

_STEP: Final = regex.compile(
    r"""(?<deep>\.\.)?(?:
        (?:\.|(?<=\.\.))(?<name>[\p{L}_][\p{L}\p{N}_-]*)
      | (?:\.|(?<=\.\.))(?<any>\*)
      | \[\s*(?<index>-?\d{1,9})\s*\]
      | \[\s*(?<all>\*)\s*\]
      | \[\s*'(?<single>(?:[^'\\]|\\.)*)'\s*\]
      | \[\s*"(?<double>(?:[^"\\]|\\.)*)"\s*\]
    )""",
    regex.VERBOSE,
)
_COMPARISON: Final = regex.compile(r"\s*(==|=|!=|<=|>=|<|>)\s*(.+?)\s*", regex.DOTALL)
_ESCAPED: Final = regex.compile(r"\\(.)", regex.DOTALL)

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ALL: Final = object()
_Step = tuple[bool, Any]
"""Whether it is taken at any depth; and a name, an index, or _ALL."""


class Condition:
    """One condition.

    Args:
        text: as it was given.

    Raises:
        InvalidRequest: it is none.
    """

    __slots__ = ("_compare", "_steps", "_value")

    def __init__(self, text: str) -> None:
        self._steps, rest = _path(text)
        self._compare: Callable[[Any, Any], bool] | None = None
        self._value: Any = None
        if rest.strip():
            found = _COMPARISON.fullmatch(rest)
            if found is None:
                raise InvalidRequest(
                    f"JSON condition '{text}' cannot be read from '{rest.strip()}' on; write it as $.name, "
                    "$.list[0].name or $..name, and a comparison behind it, as in $.total >= 100"
                )
            self._compare = _OPERATORS[found[1]]
            self._value = _literal(found[2])

    def holds(self, document: Any) -> bool:
        """Whether one of the values at the path is as it should be."""
        values = [document]
        room = VALUES_MAX
        for is_deep, step in self._steps:
            following: list[Any] = []
            for value in _within(values) if is_deep else values:
                taken = _taken(value, step)
                following += taken[: max(0, room)]
                room -= 1 + len(taken)
                if room < 0:
                    break
            values = following
        if self._compare is None:
            return bool(values)
        return any(self._fits(value) for value in values)

    def _fits(self, value: Any) -> bool:
        assert self._compare is not None
        wanted = self._value
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if _kind(value) is not _kind(wanted):
            return self._compare is operator.ne
        if self._compare not in (operator.eq, operator.ne) and not isinstance(value, str | int | float):
            return False  # null, lists and tables have no order
        try:
            return self._compare(value, wanted)
        except RecursionError:  # both nest as deep as could just be read
            return self._compare is operator.ne


def _kind(value: Any) -> type:
    """The kind of a value as JSON has it: 1 and 1.0 are one, 1 and true are not."""
    return float if type(value) is int else type(value)


def _literal(text: str) -> Any:
    """What a value is compared with: JSON, or a text without quotation marks."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):  # it nests too deep, or is no UTF-8
        return text


def _path(text: str) -> tuple[list[_Step], str]:
    """The steps of a condition's path, and what is behind it."""
    text = text.strip()
    if not text.startswith("$"):
        raise InvalidRequest(f"JSON condition '{text}' begins with no path; a path begins with $, as in $.order.id")
    steps: list[_Step] = []
    at = 1
    while found := _STEP.match(text, at):
        groups = found.groupdict()
        quoted = groups["single"] if groups["single"] is not None else groups["double"]
        step: Any = _ALL
        if groups["name"] is not None:
            step = groups["name"]
        elif groups["index"] is not None:
            step = int(groups["index"])
        elif quoted is not None:
            step = _ESCAPED.sub(r"\1", quoted)
        steps.append((groups["deep"] is not None, step))
        at = found.end()
    return steps, text[at:]


def _taken(value: Any, step: Any) -> list[Any]:
    """The values that one step leads to."""
    if type(value) is dict:
        if step is _ALL:
            return [*value.values()]
        return [value[step]] if type(step) is str and step in value else []
    if type(value) is list:
        if step is _ALL:
            return value
        if type(step) is int and -len(value) <= step < len(value):
            return [value[step]]
    return []


def _within(values: list[Any]) -> Iterator[Any]:
    """Values and all inside them, from the top."""
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        yield value
        if type(value) is dict:
            waiting += reversed(value.values())
        elif type(value) is list:
            waiting += reversed(value)
