"""Prometheus's text format, written."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value = int | float

PACKED_FROM_BYTES: Final = 16 << 10
"""Lines from so many bytes on are packed, to a tenth or less: those of 10,000 queues have 10 MB."""

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
    """The samples of one family, written as they come, and packed: none is kept as an object.

    Args:
        name: in full.
        kind: "counter", "gauge" or "histogram".
        text: what it is, in a sentence.

    Attributes:
        name: in full.
    """

    __slots__ = ("_lines", "_packed", "name")

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.name = name
        self._lines = f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()
        self._packed: list[bytes] = []

    def add(self, samples: Iterable[tuple[str, Value]]) -> None:
        """Write samples: their labels, as `labelled` writes them, and their values."""
        name = self.name
        self.write("".join([f"{name}{labels} {value}\n" for labels, value in samples]))

    def write(self, lines: str) -> None:
        """Write lines."""
        self._lines += lines.encode()
        if len(self._lines) >= PACKED_FROM_BYTES:
            self._packed.append(zlib.compress(self._lines, 1))
            self._lines = b""

    def pieces(self) -> Iterator[bytes]:
        """What is written, piece by piece."""
        yield from map(zlib.decompress, self._packed)
        yield self._lines


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
        family.write("".join(lines))

    def pieces(self) -> Iterator[bytes]:
        """All of it, piece by piece."""
        for family in self._families:
            yield from family.pieces()


def time_buckets(counts: Sequence[int]) -> list[tuple[str, int]]:
    """The buckets of times that the broker counts by the number of bits of their microseconds."""
    buckets: list[tuple[str, int]] = []
    begin = 0
    for power in range(FIRST_POWER, len(counts) - 1, POWER_STEP):
        buckets.append((repr(2**power / 1e6), sum(counts[begin : power + 1])))
        begin = power + 1
    buckets.append(("+Inf", sum(counts[begin:])))
    return buckets
