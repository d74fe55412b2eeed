"""Checks what clients of topics saw, by the checks of jepsen's Kafka test (jepsen/tests/kafka.clj).

A history is what each process did, in its order: messages sent and polled, alone or in transactions. Values are unique.
Where two offsets are compared, it is their order among all that were seen: gaps that nobody saw anything in are none.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

import msgspec

Outcome = Literal["ok", "info", "fail"]
"""It took effect; nobody knows; it did not."""

NOWHERE: Final = -1


class Sent(msgspec.Struct, frozen=True, array_like=True):
    """A message that was sent.

    Attributes:
        key: the partition, by the name of its queue.
        value: the body.
    """

    key: str
    value: str


class Polled(msgspec.Struct, frozen=True, array_like=True):
    """A message that was polled.

    Attributes:
        key: the partition.
        offset: of the message in it.
        value: the body.
        is_marked: the broker said that it may come again.
    """

    key: str
    offset: int
    value: str
    is_marked: bool = False


class Step(msgspec.Struct, frozen=True):
    """What a process did at once: a send, a poll, or a transaction of polls and sends.

    Attributes:
        process: who; one that is begun again, or joins again, is another.
        outcome: what became of it.
        sent: messages, in the order in which they were sent.
        polls: what each poll brought.
        assigned: partitions that the process was given since its step before, and where it begins in them.
        name: tells it from others of the process; of a transaction, its name.
        at: when it was noted, in seconds since 1970, for who looks into it.
    """

    process: str
    outcome: Outcome
    sent: tuple[Sent, ...] = ()
    polls: tuple[tuple[Polled, ...], ...] = ()
    assigned: dict[str, int] = {}
    name: str = ""
    at: float = 0.0

    def polled(self) -> Iterator[Polled]:
        """All that its polls brought."""
        for poll in self.polls:
            yield from poll


class History:
    """What all processes did.

    Args:
        steps: all of them; those of one process in its order.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = list(steps)
        self.values: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        self.read: set[str] = set()
        for step in self.steps:
            for each in step.polled():
                self.values[each.key][each.offset].add(each.value)
                self.places[each.value].add((each.key, each.offset))
                if step.outcome == "ok":
                    self.read.add(each.value)
        self._offsets = {key: sorted(offsets) for key, offsets in self.values.items()}

    def took_effect(self, step: Step) -> bool:
        """Whether it did: it is known, or something that it sent was read."""
        return step.outcome == "ok" or (step.outcome == "info" and any(each.value in self.places for each in step.sent))

    def between(self, key: str, low: int, high: int) -> list[int]:
        """Offsets between two at which anybody saw anything."""
        offsets = self._offsets.get(key, [])
        return offsets[bisect_right(offsets, low) : bisect_left(offsets, high)]

    def offset_of(self, sent: Sent) -> int | None:
        """Where a message is; None when nobody saw it in its partition, or saw it twice."""
        found = [offset for key, offset in self.places.get(sent.value, ()) if key == sent.key]
        return found[0] if len(found) == 1 else None

    def by_process(self) -> dict[str, list[Step]]:
        """The steps of each process."""
        found: dict[str, list[Step]] = defaultdict(list)
        for step in self.steps:
            found[step.process].append(step)
        return found


def inconsistent_offsets(history: History) -> Iterator[str]:
    """An offset of a partition has one value, whoever reads it."""
    for key, offsets in history.values.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield f"offset {offset} of {key} is {sorted(values)}"


def duplicates(history: History) -> Iterator[str]:
    """A value is at one offset of one partition, the one it was sent to."""
    for value, places in history.places.items():
        if len(places) > 1:
            yield f"{value} is at {sorted(places)}"


def unknown_values(history: History) -> Iterator[str]:
    """What is read was sent, to that partition."""
    sent = {each for step in history.steps for each in step.sent}
    for value, places in history.places.items():
        for key, offset in places:
            if Sent(key, value) not in sent:
                yield f"{value}, at offset {offset} of {key}, was never sent there"


def aborted_reads(history: History) -> Iterator[str]:
    """Nothing is read of what was aborted or refused."""
    for step in history.steps:
        if step.outcome == "fail":
            for each in step.sent:
                if each.value in history.places:
                    yield f"{each.value} was read, and sent by {step.process} {step.name}, which failed"


def precommitted_reads(history: History) -> Iterator[str]:
    """A transaction does not read what it sends."""
    for step in history.steps:
        own = {each.value for each in step.sent}
        for each in step.polled():
            if each.value in own:
                yield f"{step.process} {step.name} read {each.value}, which it sent itself"


def _unread(history: History) -> Iterator[tuple[bool, str]]:
    """What took effect and was not read, and whether something that the process sent there later was."""
    for steps in history.by_process().values():
        behind: set[str] = set()  # partitions in which something was read that was sent later
        for step in reversed(steps):
            if not history.took_effect(step):
                continue
            others = {each.key for each in step.sent if each.value in history.read}
            for each in step.sent:
                if each.value not in history.read:
                    is_torn = bool(others) and step.outcome == "info"
                    yield each.key in behind | others or is_torn, f"{each.value}, sent to {each.key} by {step.process}"
            behind |= others


def lost_writes(history: History) -> Iterator[str]:
    """What took effect is read by whoever reads beyond it."""
    return (what for is_lost, what in _unread(history) if is_lost)


def unseen(history: History) -> Iterator[str]:
    """What took effect is read at last."""
    return (what for is_lost, what in _unread(history) if not is_lost)


def _moves(history: History) -> Iterator[tuple[bool, Step, int, Polled]]:
    """From message to message of a partition, of one process: whether in one step, which, from where, and to what."""
    for steps in history.by_process().values():
        places: dict[str, int] = {}
        for step in steps:
            places.update({key: offset - 1 for key, offset in step.assigned.items()})
            here: set[str] = set()
            for each in step.polled():
                if each.key in places:
                    yield each.key in here, step, places[each.key], each
                places[each.key] = each.offset
                here.add(each.key)


def _skips(history: History, is_inside: bool) -> Iterator[str]:
    for inside, step, place, each in _moves(history):
        if inside == is_inside and (skipped := history.between(each.key, place, each.offset)):
            yield f"{step.process} {step.name} went from {place} to {each.offset} of {each.key} past {skipped[:5]}"


def _back(history: History, is_inside: bool) -> Iterator[str]:
    for inside, step, place, each in _moves(history):
        if inside == is_inside and each.offset <= place and not each.is_marked:
            yield f"{step.process} {step.name} went back from {place} to {each.offset} of {each.key}"


def poll_skips(history: History) -> Iterator[str]:
    """A poll goes on where the one before ended, or where the process was told to begin."""
    return _skips(history, False)


def internal_poll_skips(history: History) -> Iterator[str]:
    """So it is inside of one step."""
    return _skips(history, True)


def nonmonotonic_polls(history: History) -> Iterator[str]:
    """A poll does not go back, unless the messages are marked as ones that may come again."""
    return _back(history, False)


def internal_nonmonotonic_polls(history: History) -> Iterator[str]:
    """So it is inside of one step."""
    return _back(history, True)


def nonmonotonic_sends(history: History) -> Iterator[str]:
    """What a process sends to a partition is there in that order."""
    for process, steps in history.by_process().items():
        last: dict[str, int] = {}
        for each in (each for step in steps for each in step.sent):
            offset = history.offset_of(each)
            if offset is None:
                continue
            if offset <= last.get(each.key, NOWHERE):
                yield f"{each.value} of {process} is at {offset} of {each.key}, behind what it sent before"
            last[each.key] = offset


CHECKS: Final[dict[str, Callable[[History], Iterator[str]]]] = {
    "lost write": lost_writes,
    "unseen": unseen,
    "duplicate": duplicates,
    "inconsistent offsets": inconsistent_offsets,
    "poll skip": poll_skips,
    "nonmonotonic poll": nonmonotonic_polls,
    "nonmonotonic send": nonmonotonic_sends,
    "internal poll skip": internal_poll_skips,
    "internal nonmonotonic poll": internal_nonmonotonic_polls,
    "aborted read": aborted_reads,
    "precommitted read": precommitted_reads,
    "unknown value": unknown_values,
}


def anomalies(history: History) -> dict[str, list[str]]:
    """What is wrong with a history, by check; empty when it is as it should be."""
    found = {name: list(check(history)) for name, check in CHECKS.items()}
    return {name: each for name, each in found.items() if each}


def not_once(history: History, origin: Callable[[str], str], source: str, target: str) -> list[str]:
    """What was not transformed exactly once.

    Args:
        history: of which readers have read all of both topics.
        origin: the value that a value of the target was made of.
        source: what the names of the partitions begin with that were read.
        target: what those begin with that were written.
    """
    wanted = {value for value, places in history.places.items() if any(key.startswith(source) for key, _ in places)}
    made: dict[str, list[str]] = defaultdict(list)
    for value, places in history.places.items():
        made[origin(value)] += [value for key, _ in places if key.startswith(target)]
    missing = [f"nothing was made of {value}" for value in sorted(wanted) if not made[value]]
    return missing + [f"{value} was made into {found}" for value, found in sorted(made.items()) if len(found) > 1]
