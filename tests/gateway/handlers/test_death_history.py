"""What is written into dead letters: RabbitMQ 3.13's rules, record by record."""

import datetime
from typing import Any

import pytest

from shardmq.gateway.handlers.death_history import is_cycle, with_death
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from tests.gateway.handlers.deaths import death

NOW_MS = 1_700_000_000_999


TIME = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)


def headers_of(properties: Properties | None, reason: str, queue: str, **named: Any) -> dict[str, Any]:
    headers = with_death(properties, death(reason, **named), queue, None, NOW_MS).headers
    assert headers is not None
    return headers


def test_the_first_death_is_written_as_rabbitmq_writes_it() -> None:
    after = with_death(Properties(app_id="a", expiration="60000"), death("expired"), "q", None, NOW_MS)
    assert after == Properties(
        app_id="a",
        headers={
            "x-first-death-reason": "expired",
            "x-first-death-queue": "q",
            "x-first-death-exchange": "e",
            "x-last-death-reason": "expired",
            "x-last-death-queue": "q",
            "x-last-death-exchange": "e",
            "x-death": [
                {
                    "count": 1,
                    "reason": "expired",
                    "queue": "q",
                    "time": TIME,
                    "exchange": "e",
                    "routing-keys": ["k"],
                    "original-expiration": "60000",
                }
            ],
        },
    )


def test_a_message_without_properties_or_expiration_has_no_original_expiration() -> None:
    for properties in (None, Properties(headers={"mine": 1})):
        headers = headers_of(properties, "rejected", "q")
        assert "original-expiration" not in headers["x-death"][0]
        assert headers.get("mine") == (None if properties is None else 1)


def test_the_same_queue_and_reason_again_counts_and_moves_to_the_front_and_stays_as_it_was() -> None:
    headers = headers_of(Properties(expiration="5"), "rejected", "q", exchange="first", key="one")
    headers = headers_of(Properties(headers=headers), "expired", "r", exchange="second", key="two")
    assert [(each["queue"], each["reason"]) for each in headers["x-death"]] == [("r", "expired"), ("q", "rejected")]
    later = with_death(
        Properties(headers=headers), death("rejected", "third", "three"), "q", None, NOW_MS + 5000
    ).headers
    assert later is not None
    assert [(each["queue"], each["count"]) for each in later["x-death"]] == [("q", 2), ("r", 1)]
    again = later["x-death"][0]
    assert (again["exchange"], again["routing-keys"], again["time"], again["original-expiration"]) == (
        "first",
        ["one"],
        TIME,
        "5",
    )
    assert later["x-first-death-exchange"] == "first"
    assert (later["x-last-death-queue"], later["x-last-death-exchange"]) == ("q", "third")


def test_the_same_queue_for_another_reason_is_another_death() -> None:
    headers = headers_of(None, "rejected", "q")
    headers = headers_of(Properties(headers=headers), "maxlen", "q")
    assert [(each["reason"], each["count"]) for each in headers["x-death"]] == [("maxlen", 1), ("rejected", 1)]
    assert (headers["x-first-death-reason"], headers["x-last-death-reason"]) == ("rejected", "maxlen")


def test_routing_keys_are_its_own_and_those_of_cc() -> None:
    headers = headers_of(Properties(headers={"CC": ["x", 5, "y"]}), "rejected", "q")
    assert headers["x-death"][0]["routing-keys"] == ["k", "x", "y"]
    assert headers["CC"] == ["x", 5, "y"]


def test_with_a_routing_key_of_the_queue_cc_is_removed_after_it_was_written_down() -> None:
    after = with_death(Properties(headers={"CC": ["x"]}), death("rejected"), "q", "other", NOW_MS).headers
    assert after is not None
    assert "CC" not in after
    assert after["x-death"][0]["routing-keys"] == ["k", "x"]


@pytest.mark.parametrize(
    "forged", ["text", 5, None, [], [1, "x"], {"queue": "q"}, [{"queue": ["q"], 1: 2}], [{"queue": "q", "count": "9"}]]
)
def test_whatever_a_publisher_wrote_under_x_death_does_no_harm(forged: Any) -> None:
    headers = headers_of(Properties(headers={"x-death": forged, "CC": "none"}), "rejected", "q")
    assert headers["x-death"][0]["queue"] == "q"
    assert headers["x-death"][0]["count"] == 1
    assert pack(Properties(headers=headers), b"")


@pytest.mark.parametrize(("count", "after"), [(7, 8), ("9", 2), (-3, 2), (2**64 - 1, 2), (True, 2), (2**63 - 1, 2)])
def test_a_count_that_is_none_counts_as_one(count: Any, after: int) -> None:
    forged = [{"queue": "q", "reason": "rejected", "count": count}]
    headers = headers_of(Properties(headers={"x-death": forged}), "rejected", "q")
    assert headers["x-death"][0]["count"] == after
    assert pack(Properties(headers=headers), b"")


def test_what_the_message_had_is_not_touched() -> None:
    before = {"x-death": [{"queue": "q", "reason": "rejected", "count": 1}]}
    headers_of(Properties(headers=before), "rejected", "q")
    assert before == {"x-death": [{"queue": "q", "reason": "rejected", "count": 1}]}


@pytest.mark.parametrize(
    ("deaths", "home", "cycle"),
    [
        ([], "q", False),
        ([("q", "expired")], "q", True),
        ([("q", "expired")], "r", False),
        ([("r", "maxlen"), ("q", "expired")], "q", True),
        ([("r", "rejected"), ("q", "expired")], "q", False),
        ([("q", "rejected")], "q", False),
        ([("r", "expired"), ("q", "expired"), ("s", "rejected")], "q", True),
    ],
)
def test_a_cycle_is_one_that_nobody_rejected_in(deaths: list[tuple[str, str]], home: str, cycle: bool) -> None:
    assert is_cycle(home, [{"queue": queue, "reason": reason} for queue, reason in deaths]) is cycle
