"""Consumer groups on the command line."""

from collections.abc import Callable
from typing import Any

import pytest

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


@pytest.fixture
def stream(printed: Printed) -> str:
    printed("queue", "declare", "journal", "-a", "x-queue-type=stream")
    for number in range(3):
        printed("publish", "journal", f"line {number}")
    return "journal"


def test_groups_are_committed_described_reset_and_deleted(printed: Printed, parsed: Parsed, stream: str) -> None:
    assert printed("group", "commit", stream, "billing", "0=2") == (
        b"Committed 1 offset of group 'billing' of topic 'journal'\n"
    )
    (row,) = [row for row in parsed("group", "list") if row["group"] == "billing"]
    assert (row["topic"], row["partitions"], row["lag"]) == (stream, 1, 1)
    assert b"billing" in printed("group", "list")
    (place,) = parsed("group", "describe", stream, "billing")
    assert (place["partition"], place["offset"], place["end"], place["lag"], place["member"]) == (0, 2, 3, 1, "")
    assert 0 <= place["oldest_unread"] < 600
    would = printed("group", "reset", stream, "billing", "--to", "earliest", "--dry-run")
    assert would == b"Would reset group 'billing' of topic 'journal' in 1 partition\n  partition 0: 2 to 0\n"
    moved = parsed("group", "reset", stream, "billing", "--to", "1", "--partition", "0", "--yes")
    assert moved["partitions"] == [{"partition": 0, "old": 2, "new": 1, "damaged": False}]
    assert parsed("group", "reset", stream, "billing", "--to", "2001-01-01", "--yes")["partitions"][0]["new"] == 0
    assert printed("group", "delete", stream, "billing", "--yes") == b"Deleted group 'billing' of topic 'journal'\n"
    assert "billing" not in {row["group"] for row in parsed("group", "list")}


def test_what_cannot_be_done_is_refused_with_a_sentence(refused: Refused, stream: str) -> None:
    assert "no group 'nobody'" in refused("group", "reset", stream, "nobody", "--to", "latest", "--yes")
    assert "neither an offset" in refused("group", "reset", stream, "g", "--to", "sometime", "--yes", code=2)
    for wrong in ("3", "0=99999999999999999999"):
        assert "no PARTITION=OFFSET" in refused("group", "commit", stream, "g", wrong, code=2)
    assert "no partition 7" in refused("group", "commit", stream, "g", "7=0")
    assert "[0, " in refused("group", "commit", stream, "g", "0=9999")
    assert "no topic or stream 'nothing'" in refused("group", "describe", "nothing", "g")
    assert "no group 'nobody' has read" in refused("group", "describe", stream, "nobody")
