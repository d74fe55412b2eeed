"""Types of numbers on command lines: what is no such number is refused with what was given, and what may be."""

import math
from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number within bounds, or any; click's own type calls "x" no valid integer range."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it, or refuse it with what may be given."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is not {_within(self, 'a whole number')}", param, ctx)

    def _describe_range(self) -> str:
        """The bounds, as help shows them; click shows some where there are none."""
        return "" if self.min is None and self.max is None else super()._describe_range()


class Number(click.FloatRange):
    """A number within bounds, or any."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or refuse it with what may be given; "nan" is within no bounds."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not {_within(self, 'a number')}", param, ctx)
        return number

    def _describe_range(self) -> str:
        """The bounds, as help shows them; click shows some where there are none."""
        return "" if self.min is None and self.max is None else super()._describe_range()


def _within(bounds: WholeNumber | Number, kind: str) -> str:
    """What may be given, as "a whole number from 1 to 500"."""
    least = None if bounds.min is None else f"{bounds.min:,}"
    most = None if bounds.max is None else f"{bounds.max:,}"
    begins = "above" if bounds.min_open else "from"
    if least is not None and most is not None:
        return f"{kind} {begins} {least} {'to below' if bounds.max_open else 'to'} {most}"
    if least is not None:
        return f"{kind} {begins} {least}{'' if bounds.min_open else ' on'}"
    return kind if most is None else f"{kind} {'below' if bounds.max_open else 'up to'} {most}"
