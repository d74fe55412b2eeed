"""The series of the broker, and of those objects that are busy or looked at.

Memory: a sample takes eight bytes a column. The broker's own series have DENSE, some 2,200 samples of at most 22
columns: 0.4 MB each. Objects have THIN, some 420 samples of at most 14 columns: 50 KB each, and there are OBJECTS_MAX.
"""

import math
from collections.abc import Sequence
from typing import Final

from shardmq.management.samples.details import COLUMNS, Row, add_samples, values_of
from shardmq.management.samples.series import Series, Step
from shardmq.management.samples.spans import Span, Spans

SAMPLE_SECONDS: Final = 5.0
"""From one sample to the next."""

DENSE: Final = (Step(SAMPLE_SECONDS, 720), Step(60.0, 1440))
"""An hour, and a day by the minute: of the broker, its node, and virtual hosts."""

THIN: Final = (Step(SAMPLE_SECONDS, 120), Step(60.0, 60), Step(600.0, 144))
"""Ten minutes, an hour by the minute, and a day by ten minutes: of objects."""

VHOSTS_MAX: Final = 16
"""Virtual hosts whose series are dense; others have those of objects."""

OBJECTS_MAX: Final = 400
"""Objects with series; past it, the one goes that had no sample for longest: 20 MB at most."""

LOOK_ROWS_MAX: Final = 100
"""Rows of an answer that are sampled from then on; of longer ones, those that have samples get them."""

LOOKED_SECONDS: Final = 600.0
"""How long an object is sampled after somebody has looked at it."""

LOOKED_MAX: Final = 20
"""Queues that are sampled for having been looked at; those that were looked at last."""

WANTED_SECONDS: Final = 60.0
"""How long rows of lists are sampled after somebody has asked for what was kept of them."""

WANTED_MAX: Final = 200
"""Objects whose rows of lists are sampled; those that were asked for last."""

Place = tuple[str, str, str]
"""Noun, virtual host, name."""


class Samples:
    """All series."""

    def __init__(self) -> None:
        self._dense: dict[Place, Series] = {}
        self._thin: dict[Place, Series] = {}
        self._wanted: dict[Place, float] = {}

    @property
    def bytes(self) -> int:
        """Memory that the samples take."""
        return sum(series.bytes for found in (self._dense, self._thin) for series in found.values())

    def __len__(self) -> int:
        """How many series there are."""
        return len(self._dense) + len(self._thin)

    def clear(self) -> None:
        """Forget all samples; series begin anew."""
        self._dense.clear()
        self._thin.clear()
        self._wanted.clear()

    def take(self, noun: str, row: Row, at: float, name: str = "") -> None:
        """Add a row of the HTTP API to its series.

        Args:
            noun: of the kind of row.
            row: what is known now.
            at: seconds since 1970.
            name: of the object; the row's own where this is "".
        """
        self._of(noun, row.get("vhost") or "", name or row.get("name") or "").add(at, values_of(noun, row))

    def look(self, noun: str, rows: list[Row], spans: Spans, at: float) -> None:
        """Take rows that somebody asks for, and add the samples they want; of long lists, where there are some.

        Args:
            noun: of the kind of row.
            rows: are changed.
            spans: which samples are asked for.
            at: seconds since 1970.
        """
        is_long = len(rows) > LOOK_ROWS_MAX
        for row in rows if spans else ():
            vhost, name = row.get("vhost") or "", row.get("name") or ""
            series = self._known((noun, vhost, name)) if is_long else self._of(noun, vhost, name)
            if series is None:
                continue
            if not is_long:
                series.looked_at = at
            values = values_of(noun, row)
            if not all(map(math.isnan, values)):
                series.add(at, values)
            add_samples(noun, row, [series], spans, at)

    def show(self, noun: str, row: Row, names: list[str], spans: Spans, at: float) -> None:
        """Add the sums of these virtual hosts' samples to a row of their totals, whoever has them counted."""
        found = [series for name in names if (series := self._known(("vhosts", "", name))) is not None]
        if spans:
            add_samples(noun, row, found, spans, at)

    def kept(
        self, noun: str, vhost: str, name: str, columns: Sequence[int], span: Span, now: float
    ) -> list[list[int | None]]:
        """What is kept of an object, whose rows of lists are sampled from now on: numbers of each column, oldest first.

        Args:
            noun: of the kind of row.
            vhost: of the object.
            name: of the object.
            columns: their places in COLUMNS.
            span: how far back, and how dense.
            now: seconds since 1970.
        """
        place = noun, vhost, name
        self._wanted.pop(place, None)
        self._wanted[place] = now
        if len(self._wanted) > WANTED_MAX:
            del self._wanted[next(iter(self._wanted))]
        series = self._known(place)
        if series is None:
            return [[] for _ in columns]
        found = series.at(span.moments(now))[::-1]
        return [[None if row is None or math.isnan(row[at]) else round(row[at]) for row in found] for at in columns]

    def listed(self, noun: str, rows: list[Row], at: float) -> None:
        """Take the rows of a list that are sampled already, or wanted."""
        for row in rows:
            vhost, name = row.get("vhost") or "", row.get("name") or ""
            place = noun, vhost, name
            series = self._known(place)
            if series is None and self._wanted.get(place, 0.0) < at - WANTED_SECONDS:
                continue
            values = values_of(noun, row)
            if not all(map(math.isnan, values)):
                (series or self._of(*place)).add(at, values)

    def looked_at(self, noun: str, now: float) -> list[tuple[str, str]]:
        """Virtual hosts and names of objects that somebody looked at lately."""
        found = [
            (series.looked_at, vhost, name)
            for (kind, vhost, name), series in self._thin.items()
            if kind == noun and series.looked_at > now - LOOKED_SECONDS
        ]
        return [(vhost, name) for _, vhost, name in sorted(found, reverse=True)[:LOOKED_MAX]]

    def _known(self, place: Place) -> Series | None:
        return self._dense.get(place) or self._thin.get(place)

    def _of(self, noun: str, vhost: str, name: str) -> Series:
        place = noun, vhost, name
        series = self._known(place)
        if series is not None:
            return series
        is_dense = noun in ("overview", "nodes") or (noun == "vhosts" and len(self._dense) < VHOSTS_MAX)
        if is_dense:
            series = self._dense[place] = Series(len(COLUMNS[noun]), DENSE)
            return series
        if len(self._thin) >= OBJECTS_MAX:
            del self._thin[min(self._thin, key=lambda known: self._thin[known].newest)]
        series = self._thin[place] = Series(len(COLUMNS[noun]), THIN)
        return series
