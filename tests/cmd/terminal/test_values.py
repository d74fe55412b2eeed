"""Numbers as people read them."""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.cmd.terminal.values import counted, duration, singular, size

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000_000_000, "2.0 TB")]
)
def test_sizes_read_well(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (61, "1m 1s"), (3600, "1h 0m"), (90_000, "1d 1h")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 queues"), (1, "1 queue"), (2000, "2,000 queues")])
def test_counts_read_well(number: int, text: str) -> None:
    assert counted(number, "queue") == text


@pytest.mark.parametrize(
    ("nouns", "noun"),
    [("queues", "queue"), ("policies", "policy"), ("matches", "match"), ("virtual hosts", "virtual host")],
)
def test_a_list_with_one_row_names_it_in_the_singular(nouns: str, noun: str) -> None:
    assert singular(nouns) == noun
