"""Answers put together: several questions with one answer, many commands with one outcome."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.definitions.importer import ImportStep
from shardmq.errors import RequestError
from shardmq.message.keyed_records import runs
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.native.operations.basic import BasicDeliver
from shardmq.protocol.translation import to_native
from shardmq.topology.commands import Command

AT_ONCE: Final = 64
"""Commands of one stage that are under way together. Enough to keep the coordinator's passes full."""


def shaped(reply: Reply, shape: Callable[[Any], Any]) -> Reply:
    """A reply that gives results a shape and lets errors through."""

    def give(outcome: Outcome) -> None:
        reply(outcome if isinstance(outcome, RequestError) else shape(outcome))

    return give


def done(reply: Reply) -> Reply:
    """A reply without a result, whatever the result was."""
    return shaped(reply, lambda _: None)


def delivery_table(channel: int, tag: int, redelivered: bool, batch: RecordBatch, deliveries: int) -> dict[str, Any]:
    """The fields of a BasicDeliver that has no consumer, by name."""
    batch = to_native(batch)
    delivery = BasicDeliver(
        channel,
        "",
        tag,
        redelivered,
        batch.exchange,
        batch.routing_key,
        batch.flags,
        batch.timestamp_ms,
        batch.origin,
        batch.serial,
        batch.count,
        batch.records,
        deliveries,
    )
    return {name: getattr(delivery, name) for name in delivery.__struct_fields__}


def delivery_tables(
    seen: Iterable[tuple[int, bool, int, RecordBatch]], *, reads_keys: bool, place: str = ""
) -> list[dict[str, Any]]:
    """The fields of deliveries that have no consumer, by name.

    Args:
        seen: of each the number of its first message, whether it was delivered before, how often in vain, and itself.
        reads_keys: whether the client reads batches in which each message has a routing key of its own.
        place: under which name the number is added; "" for none.
    """
    tables: list[dict[str, Any]] = []
    for number, redelivered, deliveries, batch in seen:
        for part in (batch,) if reads_keys else runs(batch):
            table = delivery_table(0, 0, redelivered, part, deliveries)
            if place:
                table[place] = number + part.serial - batch.serial
            tables.append(table)
    return tables


class AnswerCollector:
    """Waits for several answers, and leaves out those that are errors.

    Args:
        expected: how many.
        then: called with what came, in no order, once all have answered.
    """

    def __init__(self, expected: int, then: Callable[[list[Any]], None]) -> None:
        self._missing = expected
        self._then = then
        self._came: list[Any] = []

    def take(self, outcome: Outcome) -> None:
        """Take an answer, or the error that stands for one."""
        if not isinstance(outcome, RequestError):
            self._came.append(outcome)
        self._missing -= 1
        if self._missing == 0:
            self._then(self._came)


def from_all(expected: int, reply: Reply, join: Callable[[list[Any]], Any]) -> Reply:
    """A reply to be given to several questions: they have one answer together, or the first error that comes.

    Args:
        expected: how many questions.
        reply: called once.
        join: makes one result of theirs, which come in no order.
    """

    def end(came: list[Any]) -> None:
        if len(came) == expected:
            reply(join(came))

    collector = AnswerCollector(expected, end)
    is_refused = False

    def take(outcome: Outcome) -> None:
        nonlocal is_refused
        if isinstance(outcome, RequestError) and not is_refused:
            is_refused = True
            reply(outcome)
        collector.take(outcome)

    return take


class CommandSequence:
    """Commands carried out stage after stage, those of one stage beside each other; ends at the first refusal.

    Args:
        perform: has one command carried out.
        stages: what to do; a stage begins when everything before it is done.
        then: called once, with what was refused and why (None when nothing was) and how many were done by noun.
    """

    def __init__(
        self,
        perform: Callable[[Command, Reply], None],
        stages: Sequence[Sequence[ImportStep]],
        then: Callable[[tuple[ImportStep, RequestError] | None, Counter[str]], None],
    ) -> None:
        self._perform = perform
        self._stages: Iterator[Sequence[ImportStep]] = iter(stages)
        self._steps: Iterator[ImportStep] = iter(())
        self._then = then
        self._under_way = 0
        self._done: Counter[str] = Counter()
        self._refused: tuple[ImportStep, RequestError] | None = None

    def begin(self) -> None:
        """Start; nothing is called back before this."""
        self._go_on()

    def _go_on(self) -> None:
        while self._under_way < AT_ONCE and self._refused is None:
            step = next(self._steps, None)
            if step is None:
                if self._under_way:
                    return
                stage = next(self._stages, None)
                if stage is None:
                    break
                self._steps = iter(stage)
                continue
            self._under_way += 1
            self._perform(step.command, self._reply_to(step))
        if self._under_way == 0:
            self._then(self._refused, self._done)

    def _reply_to(self, step: ImportStep) -> Reply:
        def reply(outcome: Outcome) -> None:
            self._under_way -= 1
            if not isinstance(outcome, RequestError):
                self._done[step.noun] += 1
            elif self._refused is None:
                self._refused = step, outcome
            self._go_on()

        return reply
