"""The checks of histories find what is planted, and nothing in histories that are as they should be."""

import random

import pytest

from .histories import CHECKS, History, Outcome, Polled, Sent, Step, anomalies, not_once

KEY = "in-0"


def send(process: str, *values: str, key: str = KEY, outcome: Outcome = "ok") -> Step:
    return Step(process, outcome, sent=tuple(Sent(key, value) for value in values))


def poll(process: str, *found: tuple[int, str], key: str = KEY, outcome: Outcome = "ok") -> Step:
    return Step(process, outcome, polls=(tuple(Polled(key, offset, value) for offset, value in found),))


ALL = poll("reader", (0, "a"), (1, "b"), (2, "c"))
SENDS = (send("p", "a"), send("p", "b"), send("p", "c"))

PLANTED: dict[str, tuple[str, list[Step]]] = {
    "what was sent before something that was read": ("lost write", [*SENDS, poll("r", (0, "a"), (2, "c"))]),
    "a part of a transaction whose end nobody knows": (
        "lost write",
        [Step("p", "info", sent=(Sent("in-0", "a"), Sent("in-1", "b"))), poll("r", (0, "a"))],
    ),
    "what only a transaction read that failed": (
        "lost write",
        [*SENDS, poll("r", (0, "a"), (2, "c")), poll("t", (1, "b"), outcome="fail")],
    ),
    "the last message": ("unseen", [*SENDS, poll("r", (0, "a"), (1, "b"))]),
    "a value at two offsets": ("duplicate", [*SENDS, ALL, poll("r", (3, "a"))]),
    "a value in two partitions": (
        "duplicate",
        [*SENDS, ALL, send("q", "a", key="in-1"), poll("r", (0, "a"), key="in-1")],
    ),
    "two values at one offset": ("inconsistent offsets", [*SENDS, send("q", "d"), ALL, poll("r", (2, "d"))]),
    "a hole between polls": ("poll skip", [*SENDS, ALL, poll("r", (0, "a")), poll("r", (2, "c"))]),
    "a hole behind where a process was told to begin": (
        "poll skip",
        [*SENDS, ALL, Step("r", "ok", polls=((Polled(KEY, 2, "c"),),), assigned={KEY: 1})],
    ),
    "a hole inside a poll": ("internal poll skip", [*SENDS, ALL, poll("r", (0, "a"), (2, "c"))]),
    "a hole between polls of one transaction": (
        "internal poll skip",
        [*SENDS, ALL, Step("r", "ok", polls=((Polled(KEY, 0, "a"),), (Polled(KEY, 2, "c"),)))],
    ),
    "a poll that goes back": ("nonmonotonic poll", [*SENDS, ALL, poll("r", (1, "b")), poll("r", (1, "b"), (2, "c"))]),
    "a poll before where a process was told to begin": (
        "nonmonotonic poll",
        [*SENDS, ALL, Step("r", "ok", polls=((Polled(KEY, 0, "a"),),), assigned={KEY: 1})],
    ),
    "a poll that goes back in itself": (
        "internal nonmonotonic poll",
        [*SENDS, ALL, poll("r", (0, "a"), (1, "b"), (1, "b"), (2, "c"))],
    ),
    "what was sent later comes first": ("nonmonotonic send", [send("p", "b"), send("p", "a"), send("p", "c"), ALL]),
    "what was sent together is turned round": ("nonmonotonic send", [send("p", "b", "a", "c"), ALL]),
    "what a failed transaction sent": ("aborted read", [*SENDS[:2], send("p", "c", outcome="fail"), ALL]),
    "what the same transaction sent": (
        "precommitted read",
        [*SENDS, ALL, Step("t", "ok", sent=(Sent(KEY, "d"),), polls=((Polled(KEY, 3, "d"),),))],
    ),
    "what nobody sent": ("unknown value", [*SENDS[:2], ALL]),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_found(what: str) -> None:
    name, steps = PLANTED[what]
    assert name in anomalies(History(steps))


def test_every_check_has_something_planted_for_it() -> None:
    assert {name for name, _ in PLANTED.values()} == set(CHECKS)


@pytest.mark.parametrize(
    "steps",
    [
        [*SENDS, ALL],
        [*SENDS[:2], send("p", "c", outcome="info"), poll("r", (0, "a"), (1, "b"))],
        [*SENDS[:2], send("p", "c", outcome="fail"), poll("r", (0, "a"), (1, "b"))],
        [*SENDS, poll("r", (10, "a"), (20, "b")), poll("r", (30, "c"))],
        [*SENDS, ALL, poll("r", (0, "a")), poll("again", (0, "a"), (1, "b"))],
        [*SENDS, ALL, poll("r", (1, "b")), Step("r", "ok", polls=((Polled(KEY, 1, "b", True),),))],
        [*SENDS, ALL, poll("r", (0, "a")), Step("r", "ok", polls=((Polled(KEY, 2, "c"),),), assigned={KEY: 2})],
    ],
    ids=["all", "unknown", "failed", "gaps", "another process", "marked", "assigned anew"],
)
def test_what_is_right_is_not_blamed(steps: list[Step]) -> None:
    assert anomalies(History(steps)) == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_history_of_a_log_is_right_until_one_message_of_it_is_changed(seed: int) -> None:
    dice = random.Random(seed)
    steps: list[Step] = []
    log: list[str] = []
    for turn in range(30):
        values = [f"{turn}/{number}" for number in range(dice.randrange(1, 5))]
        steps.append(send(f"p{dice.randrange(3)}", *values))
        log += values
    for reader in range(3):
        place = 0
        while place < len(log):
            end = min(len(log), place + dice.randrange(1, 9))
            steps.append(poll(f"r{reader}", *list(enumerate(log))[place:end]))
            place = end
    assert anomalies(History(steps)) == {}
    victim = dice.randrange(1, len(log) - 1)
    lossy = [
        Step(
            step.process, step.outcome, step.sent, tuple(tuple(m for m in p if m.offset != victim) for p in step.polls)
        )
        for step in steps
    ]
    assert set(anomalies(History(lossy))) & {"lost write", "unseen"}
    one = [step for step in steps if step.process != "r0"] + [step for step in lossy if step.process == "r0"]
    assert set(anomalies(History(one))) & {"poll skip", "internal poll skip"}


def test_what_is_made_twice_or_not_at_all_is_found() -> None:
    source = poll("reader", (0, "a"), (1, "b"))
    once = poll("reader", (0, "t1|a"), (1, "t2|b"), key="out-0")
    twice = poll("reader", (0, "t1|a"), (1, "t2|b"), (2, "t3|a"), key="out-0")
    never = poll("reader", (0, "t1|a"), key="out-0")
    found = [
        not_once(History([source, target]), lambda value: value.rpartition("|")[2], "in-", "out-")
        for target in (once, twice, never)
    ]
    assert found[0] == []
    assert found[1] == ["a was made into ['t1|a', 't3|a']"]
    assert found[2] == ["nothing was made of b"]
