"""Prometheus's text format, written."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value = int | float

FIRST_POWER: Final = 6
POWER_STEP: Final = 2
"""Histograms of time are shown with buckets of 64 µs, 256 µs and so on; the broker has twice as many."""


def labelled(labels: Mapping[str, str]) -> str:
    """Labels as they are written behind a name; "" for none."""
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()]) + "}"


def _escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


class Family:
    """The samples of one family, written as they come: none is kept as an object.

    Args:
        name: in full.
        kind: "counter", "gauge" or "histogram".
        text: what it is, in a sentence.

    Attributes:
        name: in full.
        lines: what is written.
    """

    __slots__ = ("lines", "name")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self.lines = bytearray(f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode())

    def add(self, samples: Iterable[tuple[str, Value]]) -> None:
        """Write samples: their labels, as `labelled` writes them, and their values."""
        name = self.name
        self.lines += "".join([f"{name}{labels} {value}\n" for labels, value in samples]).encode()


class Exposition:
    """Metrics, family by family.

    Args:
        prefix: of all names.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._families: list[Family] = []

    def begin(self, name: str, kind: str, text: str) -> Family:
        """Begin a family, which gets its samples later.

        Args:
            name: without the prefix.
            kind: "counter", "gauge" or "histogram".
            text: what it is, in a sentence.
        """
        family = Family(self._prefix + name, kind, text)
        self._families.append(family)
        return family

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[str, Value]]) -> None:
        """Write a family of samples.

        Args:
            name: without the prefix.
            kind: "counter" or "gauge".
            text: what it is, in a sentence.
            samples: their labels, as `labelled` writes them, and their values.
        """
        self.begin(name, kind, text).add(samples)

    def one(self, name: str, kind: str, text: str, value: Value) -> None:
        """Write a family of one sample without labels."""
        self.family(name, kind, text, [("", value)])

    def histogram(
        self, name: str, text: str, samples: Iterable[tuple[Mapping[str, str], Sequence[tuple[str, int]], Value]]
    ) -> None:
        """Write histograms of one family.

        Args:
            name: without the prefix.
            text: what it is.
            samples: labels, the buckets (upper bound as text, and how many are in that bucket alone), the sum.
        """
        family = self.begin(name, "histogram", text)
        full = family.name
        lines = []
        for labels, buckets, total in samples:
            so_far = 0
            for bound, count in buckets:
                so_far += count
                lines.append(f"{full}_bucket{labelled({**labels, 'le': bound})} {so_far}\n")
            lines.append(f"{full}_sum{labelled(labels)} {total}\n")
            lines.append(f"{full}_count{labelled(labels)} {so_far}\n")
        family.lines += "".join(lines).encode()

    def move_to(self, content: bytearray) -> None:
        """Add all of it to an answer, family by family: what is there is not here any more."""
        for family in self._families:
            content += family.lines
            family.lines.clear()
        self._families.clear()


def time_buckets(counts: Sequence[int]) -> list[tuple[str, int]]:
    """The buckets of times that the broker counts by the number of bits of their microseconds."""
    buckets: list[tuple[str, int]] = []
    begin = 0
    for power in range(FIRST_POWER, len(counts) - 1, POWER_STEP):
        buckets.append((repr(2**power / 1e6), sum(counts[begin : power + 1])))
        begin = power + 1
    buckets.append(("+Inf", sum(counts[begin:])))
    return buckets
