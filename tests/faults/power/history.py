"""What clients saw, with times (monotonic nanoseconds), and what must be there after a power loss."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .groups import GroupNotes, Left


@dataclass(slots=True)
class Sent:
    """A message as its publisher knows it: where it went, when, and when it was confirmed, if it was."""

    queues: tuple[str, ...]
    publisher: str
    place: int
    sent_at: int
    confirmed_at: int | None = None
    transaction: str | None = None


@dataclass(slots=True)
class Seen:
    """A message as a consumer knows it."""

    received_at: int
    settled_at: int | None = None


@dataclass(slots=True)
class Transacted:
    """A transaction: how many messages it has in each queue, when its commit was asked for and answered."""

    messages: dict[str, int]
    asked_at: int | None = None
    committed_at: int | None = None


PARTS: Final = ("lost", "unknown", "unmarked", "reordered", "copies", "torn", "groups")
"""What may be wrong."""


@dataclass(slots=True)
class Verdict:
    """What is wrong with what was found; each list is empty when all is well."""

    moment: int
    confirmed: int = 0
    found: int = 0
    lost: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unmarked: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not any(getattr(self, part) for part in PARTS)

    def __str__(self) -> str:
        wrong = ", ".join(
            f"{len(getattr(self, part))} {part} {getattr(self, part)[:3]}" for part in PARTS if getattr(self, part)
        )
        return f"{self.confirmed} confirmed, {self.found} found: {wrong or 'all promises kept'}"


class History:
    """All that clients note, from several threads."""

    def __init__(self) -> None:
        self.sent: dict[str, Sent] = {}
        self.seen: dict[tuple[str, str], list[Seen]] = defaultdict(list)
        self.transactions: dict[str, Transacted] = {}
        self.groups = GroupNotes()
        self._lock = threading.Lock()
        self._places: Counter[str] = Counter()

    def send(self, publisher: str, queues: Sequence[str], count: int = 1, transaction: str | None = None) -> list[str]:
        """Names for messages that are about to be published."""
        with self._lock:
            ids = []
            for _ in range(count):
                place = self._places[publisher]
                self._places[publisher] += 1
                ids.append(f"{publisher}:{place}")
                self.sent[ids[-1]] = Sent(tuple(queues), publisher, place, time.monotonic_ns(), transaction=transaction)
            return ids

    def confirm(self, ids: Sequence[str]) -> None:
        """They were confirmed, just now."""
        now = time.monotonic_ns()
        for name in ids:
            self.sent[name].confirmed_at = now

    def receive(self, queue: str, name: str) -> Seen:
        """It came, just now."""
        seen = Seen(time.monotonic_ns())
        self.seen[queue, name].append(seen)
        return seen

    def check(
        self, moment: int, found: Mapping[str, Sequence[tuple[str, bool]]], dead: Mapping[str, str], left: Left
    ) -> Verdict:
        """Compare what was found after a power loss with what was promised before.

        Args:
            moment: of the power loss.
            found: by queue, in order: (message, whether it was marked redelivered).
            dead: by queue, the queue to which its dead letters go.
            left: of the groups.
        """
        verdict = Verdict(moment, found=sum(map(len, found.values())), groups=self.groups.check(moment, left))
        there = {queue: Counter(name for name, _ in messages) for queue, messages in found.items()}
        for name, sent in self.sent.items():
            if sent.transaction is None and sent.confirmed_at is not None and sent.confirmed_at <= moment:
                verdict.confirmed += 1
                for queue in sent.queues:
                    if (
                        not self._is_settled(queue, name, moment)
                        and not there[queue][name]
                        and (queue not in dead or not there[dead[queue]][name])
                    ):
                        verdict.lost.append(f"{name} in {queue}")
        for queue, messages in found.items():
            self._check_queue(verdict, queue, messages, {source for source, home in dead.items() if home == queue})
        self._check_transactions(verdict, there)
        return verdict

    def _is_settled(self, queue: str, name: str, moment: int) -> bool:
        return any(seen.settled_at is not None and seen.settled_at <= moment for seen in self.seen[queue, name])

    def _check_queue(
        self, verdict: Verdict, queue: str, messages: Sequence[tuple[str, bool]], sources: set[str]
    ) -> None:
        places: dict[str, int] = {}
        for name, redelivered in messages:
            sent = self.sent.get(name)
            if sent is None or sent.sent_at > verdict.moment or not {queue, *sources} & set(sent.queues):
                verdict.unknown.append(f"{name} in {queue}")
                continue
            if any(seen.received_at <= verdict.moment for seen in self.seen[queue, name]) and not redelivered:
                verdict.unmarked.append(f"{name} in {queue}")
            if not sources:
                if sent.place < places.get(sent.publisher, -1):
                    verdict.reordered.append(f"{name} in {queue}")
                places[sent.publisher] = sent.place
        verdict.copies += [
            f"{name} in {queue}" for name, count in Counter(name for name, _ in messages).items() if count > 1
        ]

    def _check_transactions(self, verdict: Verdict, there: Mapping[str, Counter[str]]) -> None:
        parts: dict[str, Counter[str]] = defaultdict(Counter)
        for name, sent in self.sent.items():
            if sent.transaction is not None:
                for queue in sent.queues:
                    parts[sent.transaction][queue] += there[queue][name]
        for name, transacted in self.transactions.items():
            is_whole = all(parts[name][queue] == count for queue, count in transacted.messages.items())
            is_nothing = not any(parts[name].values())
            was_answered = transacted.committed_at is not None and transacted.committed_at <= verdict.moment
            was_asked = transacted.asked_at is not None and transacted.asked_at <= verdict.moment
            if not (is_whole or (is_nothing and not was_answered)) or (is_whole and not was_asked):
                verdict.torn.append(f"{name}: {dict(parts[name])} of {transacted.messages}")
