"""Samples: dense when they are new, thin when they are old, and bounded."""

import pytest

from shardmq.management.samples.series import TRIM, Series, Step
from shardmq.management.samples.spans import BadSpan, Span, spans_of
from shardmq.management.samples.store import OBJECTS_MAX, THIN, Samples


def test_old_samples_are_thinner_and_memory_is_bounded() -> None:
    series = Series(2, (Step(5.0, 100), Step(60.0, 100)))
    for second in range(0, 10_000, 5):
        series.add(float(second), (float(second), 1.0))
    assert series.bytes <= 2 * (100 + TRIM) * 3 * 8
    assert series.at([9995, 9990, 9600]) == [(9995.0, 1.0), (9990.0, 1.0), (9600.0, 1.0)]
    assert series.at([9995, 5035]) == [(9960.0, 1.0), (4980.0, 1.0)]
    assert series.at([1]) == [None]


def test_where_nobody_counted_there_is_a_gap() -> None:
    series = Series(1, (Step(5.0, 100),))
    series.add(100.0, (1.0,))
    series.add(200.0, (2.0,))
    assert series.at([200, 150, 105, 99]) == [(2.0,), None, (1.0,), None]


def test_a_clock_that_was_set_back_begins_anew() -> None:
    series = Series(1, (Step(5.0, 100),))
    series.add(100.0, (1.0,))
    series.add(50.0, (2.0,))
    assert series.at([100, 55]) == [None, (2.0,)]


def test_spans_are_those_of_rabbitmq() -> None:
    assert spans_of({"lengths_age": "60", "lengths_incr": "5", "msg_rates_age": "60"}) == {"lengths": Span(60, 5)}
    assert Span(10, 5).moments(103.7) == [100, 95, 90]
    for query in (
        {"lengths_age": "x", "lengths_incr": "5"},
        {"lengths_age": "0", "lengths_incr": "5"},
        {"node_stats_age": "5010", "node_stats_incr": "10"},
    ):
        with pytest.raises(BadSpan):
            spans_of(query)


def test_there_are_never_more_series_than_allowed() -> None:
    samples = Samples()
    for number in range(3 * OBJECTS_MAX):
        samples.take("queues", {"vhost": "/", "name": str(number), "messages": number}, float(number))
    assert len(samples) == OBJECTS_MAX
    per_object = sum(step.kept + TRIM for step in THIN) * 8 * 14
    assert per_object * OBJECTS_MAX < 22_000_000
    row = {"vhost": "/", "name": str(3 * OBJECTS_MAX - 1), "messages": 7}
    samples.look("queues", [row], {"lengths": Span(10, 5)}, 3.0 * OBJECTS_MAX + 5)
    assert row["messages_details"]["samples"][0] == {"sample": 7, "timestamp": 1000 * (3 * OBJECTS_MAX + 5)}  # type: ignore[index]
