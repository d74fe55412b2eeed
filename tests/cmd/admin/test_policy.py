"""`shardmq policy` and `shardmq permission topic`."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.traffic import until

Printed = Callable[..., bytes]
Parsed = Callable[..., Any]
Refused = Callable[..., str]
pytestmark = pytest.mark.usefixtures("at")


def test_a_policy_is_previewed_set_shown_and_deleted(printed: Printed, parsed: Parsed, refused: Refused) -> None:
    printed("queue", "declare", "orders.1", "-a", "x-max-length=50")
    (row,) = parsed("policy", "preview", "short", "^orders", "max-length=10", "message-ttl=60000")
    assert (row["name"], row["policy_before"], row["policy"]) == ("orders.1", None, "short")
    assert row["changes"] == {"x-max-length": [50, 10], "x-message-ttl": [None, 60000]}
    said = printed("policy", "set", "short", "^orders", "max-length=10", "--priority", "3", "--apply-to", "queues")
    assert said == b"Set policy 'short' in virtual host '/'\n"
    (row,) = parsed("policy", "list")
    assert (row["pattern"], row["definition"], row["priority"], row["apply_to"]) == (
        "^orders",
        {"max-length": 10},
        3,
        "queues",
    )
    (queue,) = parsed("queue", "list")
    assert queue["policy"] == "short"
    (matched,) = parsed("policy", "match", "orders.new")
    assert matched["applies"] is True
    (row,) = parsed("policy", "preview", "short", "--delete")
    assert row["changes"] == {"x-max-length": [10, 50]}
    assert "10 → 50" in printed("policy", "preview", "short", "--delete").decode()
    printed("policy", "delete", "short")
    assert parsed("policy", "list") == []
    assert "no policy 'short' in vhost '/'" in refused("policy", "delete", "short")
    assert "-1 is not a valid maximum length" in refused("policy", "set", "short", "a", "max-length=-1")
    assert "give a PATTERN and settings, or --delete" in refused("policy", "preview", "short")


def test_an_operator_policy_is_one_of_its_own(printed: Printed, parsed: Parsed) -> None:
    printed("policy", "set", "most", "", "max-length=10", "--operator")
    assert parsed("policy", "list") == []
    assert [row["name"] for row in parsed("policy", "list", "--operator")] == ["most"]
    printed("policy", "delete", "most", "--operator")


def test_topic_permissions_are_set_and_cleared(printed: Printed, parsed: Parsed) -> None:
    printed("permission", "topic", "set", "guest", "amq.topic", "^a", "^b")
    (row,) = parsed("permission", "topic", "list")
    assert row == {"user": "guest", "vhost": "/", "exchange": "amq.topic", "write": "^a", "read": "^b"}
    printed("permission", "topic", "clear", "guest")
    assert parsed("permission", "topic", "list") == []


def test_watermarks_of_a_running_broker_change_and_alarms_with_them(printed: Printed, parsed: Parsed) -> None:
    assert parsed("watermark", "--memory", "10MiB", "--disk-free", "1B") == {"ok": True}
    until(lambda: any(each.get("alarms") for each in parsed("status")["processes"]), "all have more memory than that")
    printed("watermark", "--memory", "100GiB")
    until(lambda: not any(each.get("alarms") for each in parsed("status")["processes"]), "nobody has so much")
