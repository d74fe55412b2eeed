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


class Exposition:
    """Metrics, family by family.

    Args:
        prefix: of all names.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[str, Value]]) -> None:
        """Write a family of samples.

        Args:
            name: without the prefix.
            kind: "counter" or "gauge".
            text: what it is, in a sentence.
            samples: their labels, as `labelled` writes them, and their values.
        """
        full = self._head(name, kind, text)
        self._lines += [f"{full}{labels} {value}" for labels, value in samples]

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
        full = self._head(name, "histogram", text)
        for labels, buckets, total in samples:
            so_far = 0
            for bound, count in buckets:
                so_far += count
                self._lines.append(f"{full}_bucket{labelled({**labels, 'le': bound})} {so_far}")
            self._lines.append(f"{full}_sum{labelled(labels)} {total}")
            self._lines.append(f"{full}_count{labelled(labels)} {so_far}")

    def _head(self, name: str, kind: str, text: str) -> str:
        full = self._prefix + name
        self._lines.append(f"# HELP {full} {text}")
        self._lines.append(f"# TYPE {full} {kind}")
        return full

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n" if self._lines else ""


def time_buckets(counts: Sequence[int]) -> list[tuple[str, int]]:
    """The buckets of times that the broker counts by the number of bits of their microseconds."""
    buckets: list[tuple[str, int]] = []
    begin = 0
    for power in range(FIRST_POWER, len(counts) - 1, POWER_STEP):
        buckets.append((repr(2**power / 1e6), sum(counts[begin : power + 1])))
        begin = power + 1
    buckets.append(("+Inf", sum(counts[begin:])))
    return buckets
