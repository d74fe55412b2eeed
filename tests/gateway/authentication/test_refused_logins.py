"""What the log says of refused logins."""

import logging

import pytest

from shardmq.gateway.authentication.refused_logins import COMPLAINTS_MAX, NAMES_MAX, SUMMARY_SECONDS, RefusedLogins


@pytest.fixture(autouse=True)
def _all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_ten_refusals_a_minute_have_a_line_and_the_rest_one_together(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusedLogins()
    refusals.tick(1000.0)
    for number in range(500):
        refusals.add(f"10.0.0.{number % 2}", "guest", "no")
    assert len(caplog.messages) == COMPLAINTS_MAX
    refusals.tick(1000.0 + SUMMARY_SECONDS - 1)
    assert len(caplog.messages) == COMPLAINTS_MAX
    refusals.tick(1000.0 + SUMMARY_SECONDS)
    (summary,) = caplog.messages[COMPLAINTS_MAX:]
    assert summary.startswith("500 logins were refused, 490 of them without a line here: ")
    assert summary.endswith(": from 10.0.0.0 (250), 10.0.0.1 (250); as 'guest' (500)")
    assert refusals.count == 500
    refusals.tick(1000.0 + 3 * SUMMARY_SECONDS)  # nothing new, nothing to say
    assert len(caplog.messages) == COMPLAINTS_MAX + 1
    refusals.add("10.0.0.3", "ann", "no")
    assert "login of user 'ann' from 10.0.0.3 refused: no" in caplog.text


def test_what_is_remembered_of_names_is_bounded_and_each_line_is_one(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusedLogins()
    for number in range(3 * NAMES_MAX):
        refusals.add(f"10.0.{number // 250}.{number % 250}", f"u{number}\n{'x' * 10_000}", "user '\n' is not known")
    refusals.sum_up()
    assert all(len(message) < 3000 and "\n" not in message for message in caplog.messages)
    assert "995 or more other addresses (2,995)" in caplog.messages[-1]


def test_the_minute_begins_with_the_first_refusal_even_before_the_first_tick(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusedLogins()
    for _ in range(COMPLAINTS_MAX):
        refusals.add("10.0.0.1", "ann", "no")
    refusals.tick(5000.0)
    refusals.add("10.0.0.1", "ann", "no")
    assert len(caplog.messages) == COMPLAINTS_MAX
    refusals.tick(5000.0 + SUMMARY_SECONDS)
    assert "11 logins were refused, 1 of them" in caplog.messages[-1]
