"""What a check found: status, sentence and measures."""

from dataclasses import dataclass
from enum import IntEnum


class Status(IntEnum):
    """The exit codes of Nagios plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on a number is a warning, and from where on it is critical.

    Attributes:
        warning: the first bound.
        critical: the second.
        is_least: whether numbers below the bounds are bad, not those that reach them.
    """

    warning: float
    critical: float
    is_least: bool = False

    def status(self, value: float) -> Status:
        """What a number means."""
        for bound, status in ((self.critical, Status.CRITICAL), (self.warning, Status.WARNING)):
            if value < bound if self.is_least else value >= bound:
                return status
        return Status.OK


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that a check looked at.

    Attributes:
        name: in snake case, with its unit last.
        value: the number.
        limits: None where the number only informs.
        unit: of Nagios' performance data: "s", "B" or "" for a count.
    """

    name: str
    value: float
    limits: Limits | None = None
    unit: str = ""

    @property
    def status(self) -> Status:
        """What the number means."""
        return Status.OK if self.limits is None else self.limits.status(self.value)


@dataclass(frozen=True, slots=True)
class Result:
    """What a check found.

    Attributes:
        check: its name, as "queue".
        status: the worst of all.
        text: a sentence for people.
        measures: the numbers.
    """

    check: str
    status: Status
    text: str
    measures: tuple[Measure, ...] = ()


def judged(check: str, text: str, *measures: Measure) -> Result:
    """A result whose status is the worst of its measures."""
    return Result(check, max((measure.status for measure in measures), default=Status.OK), text, measures)
