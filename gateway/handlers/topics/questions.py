"""Questions to the shards of many partitions: some hundred are under way at a time, and their answers come together."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from shardmq.bus.coordinator_link import Outcome, Reply
from shardmq.bus.messages.base import Request
from shardmq.errors import RequestError
from shardmq.gateway.handlers.status import ANSWER_SECONDS
from shardmq.gateway.session.client import Client
from shardmq.topology.entities import Queue

Place = tuple[int, Queue]
"""A partition: its number in the topic, and its queue."""

AT_ONCE: Final = 256
"""Partitions that are asked at a time: a topic may have 10,000."""


def ask_all(
    client: Client,
    places: Sequence[Place],
    question: Callable[[Place], Request[Any]],
    then: Callable[[list[Any]], None],
    reply: Reply,
) -> None:
    """Ask the shards of all partitions; their answers come together, in order, or the first refusal does."""
    answers: list[Any] = [None] * len(places)

    def ask(number: int, came: Reply) -> None:
        place = places[number]
        client.state.links[place[1].shard].ask(question(place), came)

    def take(number: int, outcome: Outcome) -> bool:
        if isinstance(outcome, RequestError):
            reply(outcome)
            return False
        answers[number] = outcome
        return True

    _Questions(len(places), ask, take, lambda: then(answers)).go_on()


def look_at_all(
    client: Client,
    places: Sequence[Place],
    question: Callable[[Place], Request[Any]],
    then: Callable[[list[Any]], None],
) -> None:
    """Ask the shards of all partitions for what is only shown. Their answers come together, in order.

    None stands for those that refuse, as the partition is out of service, and for those of shards that do not answer.
    """
    answers: list[Any] = [None] * len(places)

    def ask(number: int, came: Reply) -> None:
        place = places[number]
        client.state.links[place[1].shard].look(question(place), came, ANSWER_SECONDS)

    def take(number: int, outcome: Outcome) -> bool:
        if not isinstance(outcome, RequestError):
            answers[number] = outcome
        return True

    _Questions(len(places), ask, take, lambda: then(answers)).go_on()


class _Questions:
    """Questions, so many under way at a time.

    Args:
        count: how many there are.
        ask: asks one, by its number; the outcome may come at once.
        take: takes an outcome, and tells whether to go on.
        done: called when all have answered.
    """

    __slots__ = ("_ask", "_done", "_is_asking", "_is_over", "_left", "_take", "_under_way")

    def __init__(
        self,
        count: int,
        ask: Callable[[int, Reply], None],
        take: Callable[[int, Outcome], bool],
        done: Callable[[], None],
    ) -> None:
        self._left = iter(range(count))
        self._ask = ask
        self._take = take
        self._done = done
        self._under_way = 0
        self._is_asking = self._is_over = False

    def go_on(self) -> None:
        """Ask as many as may be under way."""
        if self._is_asking or self._is_over:
            return  # an outcome came at once: the loop that asked goes on
        self._is_asking = True
        while self._under_way < AT_ONCE and not self._is_over:
            number = next(self._left, None)
            if number is None:
                break
            self._under_way += 1
            self._ask(number, partial(self._came, number))
        self._is_asking = False
        if not self._under_way and not self._is_over:
            self._is_over = True
            self._done()

    def _came(self, number: int, outcome: Outcome) -> None:
        self._under_way -= 1
        if self._is_over:
            return
        if self._take(number, outcome):
            self.go_on()
        else:
            self._is_over = True
