"""Arguments that AMQP clients give: what is kept, what is ignored, and what the log says of it."""

import logging

import pytest

from shardmq.gateway.amqp import arguments

LOGGER = "shardmq.gateway.amqp.arguments"


@pytest.fixture(autouse=True)
def forget_names() -> None:
    arguments._named.clear()


def test_an_unknown_argument_is_named_once_with_the_nearest_known_one(caplog: pytest.LogCaptureFixture) -> None:
    for queue in ("q", "another"):
        assert arguments.of_queue(queue, {"x-mesage-ttl": 5, "x-max-length": 3}) == {"x-max-length": 3}
    assert caplog.messages == ["unknown argument 'x-mesage-ttl' of queue 'q' is ignored; did you mean 'x-message-ttl'?"]


def test_each_kind_of_thing_has_its_own_known_arguments(caplog: pytest.LogCaptureFixture) -> None:
    assert arguments.of_consumer("q", {"x-prioritty": 5, "x-priority": 7}) == {"x-priority": 7}
    assert arguments.of_exchange("direct", "e", {"x-alternate-exchange": "other", "hash-header": "h"}) == {}
    assert arguments.of_exchange("x-consistent-hash", "e", {"hash-header": "h"}) == {"hash-header": "h"}
    assert arguments.of_queue("q", {"x-priority": 7, "x-nothing-like-any": 1}) == {}
    assert caplog.messages == [
        "unknown argument 'x-prioritty' of a consumer of queue 'q' is ignored; did you mean 'x-priority'?",
        "unknown argument 'x-alternate-exchange' of exchange 'e' is ignored; did you mean 'alternate-exchange'?",
        "unknown argument 'x-priority' of queue 'q' is ignored; did you mean 'x-max-priority'?",
        "unknown argument 'x-nothing-like-any' of queue 'q' is ignored",
    ]


def test_what_rabbitmq_knows_and_what_programs_note_for_themselves_is_not_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    idle = dict.fromkeys(arguments.IDLE_ARGUMENTS, 1)
    assert arguments.of_queue("q", {**idle, "owner": "me", "": None}) == {}
    assert caplog.messages == []


def test_names_are_logged_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    arguments.of_queue("q\nshardmq: forged", {"x-\nforged": 1})
    assert [message for message in caplog.messages if "\n" in message] == []
    assert len(caplog.messages) == 1


def test_so_many_names_are_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        for number in range(arguments.NAMES_MAX + 10):
            assert arguments.of_queue("q", {f"x-{number:x}": number}) == {}
    assert len(caplog.messages) == len(arguments._named) == arguments.NAMES_MAX


def test_streams_keep_their_own_arguments_and_those_that_place_them() -> None:
    told = {"x-queue-type": "stream", "x-max-age": "1D", "x-queue-leader-locator": "client-local", "more": 1}
    assert arguments.of_queue("q", told) == {name: value for name, value in told.items() if name != "more"}


def test_values_that_say_what_holds_anyhow_are_left_out() -> None:
    said = {"x-delivery-limit": -1, "x-max-priority": 0, "x-dead-letter-strategy": "at-least-once"}
    assert arguments.of_queue("q", said) == {}
    kept = {"x-delivery-limit": 0, "x-max-priority": 1, "x-dead-letter-exchange": ""}
    assert arguments.of_queue("q", kept) == kept
