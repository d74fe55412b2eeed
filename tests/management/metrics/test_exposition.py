"""Prometheus's text format, as its own client reads it back."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from shardmq.management.metrics.exposition import Exposition, labelled, time_buckets
from shardmq.runtime.statistics.histograms import TimeHistogram


def said(out: Exposition) -> str:
    return b"".join(out.pieces()).decode()


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_labels_are_read_back_as_they_were(labels: dict[str, str]) -> None:
    out = Exposition("p_")
    out.family("x", "gauge", "What it is", [(labelled(labels), 1)])
    (family,) = text_string_to_metric_families(said(out))
    assert family.samples[0].labels == labels


@given(st.lists(st.floats(0, 1e5)))
def test_every_time_is_in_the_buckets_that_end_above_it(times: list[float]) -> None:
    counted = TimeHistogram()
    for seconds in times:
        counted.add(seconds)
    so_far = 0
    for bound, count in time_buckets(counted.counts):
        so_far += count
        assert so_far == sum(int(seconds * 1e6) < float(bound) * 1e6 for seconds in times)
