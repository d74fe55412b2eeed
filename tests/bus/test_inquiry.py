"""Requests that only read: what fails in them refuses them, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.inquiry import Inquiry, watched
from shardmq.errors import NotFound, ReplyCode, RequestError


class Asked:
    """A request, and what became of it."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.went_on = 0
        self.inquiry = Inquiry("Look", self.said.append, self.go_on)

    def go_on(self) -> None:
        self.went_on += 1

    def refusal(self) -> RequestError:
        (outcome,) = self.said
        assert isinstance(outcome, RequestError)
        assert self.went_on == 1
        return outcome


def failing(*_given: Any) -> None:
    raise ZeroDivisionError("nobody thought of it")


def test_what_is_answered_is_answered_once() -> None:
    asked = Asked()
    asked.inquiry.run(asked.inquiry.reply, "found")
    asked.inquiry.run(asked.inquiry.reply, "found again")
    assert (asked.said, asked.went_on) == (["found"], 1)


def test_what_fails_at_once_is_refused() -> None:
    asked = Asked()
    asked.inquiry.run(failing)
    refusal = asked.refusal()
    assert refusal.code == ReplyCode.INTERNAL_ERROR
    assert "Look failed (ZeroDivisionError)" in refusal.text


def test_what_fails_with_the_answer_to_a_question_is_refused() -> None:
    asked = Asked()
    questions: list[Callable[..., None]] = []
    asked.inquiry.run(lambda: questions.append(watched(failing)))
    assert not asked.said
    questions[0]("an answer")
    assert asked.refusal().code == ReplyCode.INTERNAL_ERROR


def test_questions_that_follow_from_answers_are_watched_too() -> None:
    asked = Asked()
    questions: list[Callable[..., None]] = []

    def ask_on(_answer: str) -> None:
        questions.append(watched(failing))

    asked.inquiry.run(lambda: questions.append(watched(ask_on)))
    questions[0]("an answer")
    questions[1]("another one")
    asked.refusal()


def test_a_refusal_that_comes_with_an_answer_is_passed_on() -> None:
    asked = Asked()

    def refuse() -> None:
        raise NotFound("it is gone")

    asked.inquiry.run(refuse)
    assert asked.refusal().text == "it is gone"


def test_an_answer_that_cannot_be_said_is_refused() -> None:
    said: list[Any] = []

    def say(outcome: Any) -> None:
        if outcome == "unspeakable":
            raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")
        said.append(outcome)

    inquiry = Inquiry("Look", say, lambda: None)
    inquiry.run(inquiry.reply, "unspeakable")
    assert [outcome.code for outcome in said] == [ReplyCode.INTERNAL_ERROR]


def test_what_fails_behind_the_answer_is_no_fault_of_the_request() -> None:
    said: list[Any] = []
    inquiry = Inquiry("Look", said.append, failing)
    with pytest.raises(ZeroDivisionError):
        inquiry.run(inquiry.reply, "found")
    assert said == ["found"]


def test_nothing_else_is_watched() -> None:
    asked = Asked()
    asked.inquiry.run(asked.inquiry.reply, "found")
    assert watched(failing) is failing
