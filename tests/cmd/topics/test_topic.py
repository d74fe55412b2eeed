"""Topics on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


def test_topics_are_declared_listed_extended_and_deleted(printed: Printed, parsed: Parsed) -> None:
    declared = printed("topic", "declare", "prices", "--partitions", "3", "--retention-ms", "60000")
    assert declared == b"Declared topic 'prices' with 3 partitions\n"
    (row,) = [row for row in parsed("topic", "list") if row["name"] == "prices"]
    assert (row["partitions"], row["epoch"], row["arguments"]) == (3, 1, {"x-max-age": "60s"})
    assert b"max-age=60s" in printed("topic", "list")
    assert printed("topic", "extend", "prices", "5") == b"Extended topic 'prices' to 5 partitions\n"
    info = parsed("topic", "info", "prices")
    assert (info["epoch"], [row["queue"] for row in info["partitions"]]) == (2, [f"prices-{n}" for n in range(5)])
    assert b"prices-4" in printed("topic", "info", "prices", "--sort", "-partition")
    assert printed("topic", "delete", "prices", "--yes") == b"Deleted topic 'prices'\n"
    assert "prices" not in {row["name"] for row in parsed("topic", "list")}


def test_what_cannot_be_done_is_refused_with_a_sentence(printed: Printed, refused: Refused) -> None:
    printed("topic", "declare", "news", "--partitioner", "round-robin", "--retention-messages", "1000")
    assert "inequivalent arg 'partitions'" in refused(
        "topic", "declare", "news", "-p", "2", "--partitioner", "round-robin", "--retention-messages", "1000"
    )
    assert "whole seconds, such as 2000; got 1500" in refused("topic", "declare", "old", "--retention-ms", "1500")
    assert "no topic 'nothing'" in refused("topic", "info", "nothing")
    assert "no topic 'nothing'" in refused("topic", "extend", "nothing", "2")
    assert "delete the topic" in refused("queue", "delete", "news-0", "--yes")
    printed("topic", "delete", "news", "--yes", "--if-unused")
