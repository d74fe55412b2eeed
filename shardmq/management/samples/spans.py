"""Which samples a request asks for: `lengths_age`, `lengths_incr` and so on, as RabbitMQ's HTTP API has them."""

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

GROUPS: Final = ("lengths", "msg_rates", "data_rates", "node_stats")
"""What there are samples of: depths of queues, messages, bytes of connections, the node."""

PARAMETERS: Final = tuple(f"{group}_{part}" for group in GROUPS for part in ("age", "incr"))

SAMPLES_MAX: Final = 500
"""Steps of a span; RabbitMQ's."""

AGE_SECONDS_MAX: Final = 86_400
"""Nothing older is kept."""


class BadSpan(ValueError):
    """A parameter makes no sense; says which and why."""


class Span(NamedTuple):
    """How far back samples go, and how dense they are, in seconds."""

    age: int
    step: int

    def moments(self, now: float) -> list[int]:
        """Its moments at whole steps, the newest first: seconds since 1970."""
        last = int(now) // self.step * self.step
        return [last - self.step * number for number in range(self.age // self.step + 1)]


Spans = Mapping[str, Span]
"""By group; groups that nobody asks for are not there."""


def spans_of(query: Mapping[str, str]) -> dict[str, Span]:
    """The spans that a request asks for.

    Raises:
        BadSpan: an age or a step is no number, or there would be too many samples.
    """
    found = {}
    for group in GROUPS:
        age, step = _seconds(query, f"{group}_age"), _seconds(query, f"{group}_incr")
        if not age or not step:
            continue
        if age // step > SAMPLES_MAX:
            raise BadSpan(f"{group}_age / {group}_incr is {age // step}; {SAMPLES_MAX} samples at most")
        found[group] = Span(age, step)
    return found


def _seconds(query: Mapping[str, str], name: str) -> int:
    given = query.get(name, "")
    if not given:
        return 0
    if not (given.isascii() and given.isdigit()) or len(given) > 9 or not 1 <= int(given) <= AGE_SECONDS_MAX:
        raise BadSpan(f"{name} is '{given[:20]}'; give seconds from 1 to {AGE_SECONDS_MAX}")
    return int(given)


def now() -> float:
    """Seconds since 1970."""
    return time.time()
