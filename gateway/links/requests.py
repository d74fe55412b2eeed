"""Requests under way to a shard: what was asked, until when, and what becomes of it when the shard goes away."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from shardmq.bus.coordinator_link import Reply
from shardmq.bus.dialer import Dialer
from shardmq.bus.inquiry import watched
from shardmq.bus.link import LinkLost
from shardmq.bus.messages.base import Answer, Call, Refusal, Request, result_of
from shardmq.bus.messages.reads import EndReservation
from shardmq.bus.messages.shard import Consume, FromShard, Got, Nack
from shardmq.errors import ReplyCode, Timeout, Unavailable, request_error
from shardmq.limits import DECLARE_SECONDS, HANDOVER_SECONDS

UNCERTAIN: Final = "stored or not is not certain; publish again"
"""What publishers are told of messages that a shard took in, or did not, before it went away."""

LOSSES_MAX: Final = 1
"""A shard is asked again for what was under way when it went away, unless that was so the last time, too."""

FOREVER: Final = math.inf
"""A consumer that runs is resumed however long its shard was away."""


@dataclass(slots=True)
class _Asked:
    message: Any
    reply: Reply
    deadline: float
    place: int = 0
    losses: int = 0  # how often the shard went away while it was under way


def _is_start_of_a_consumer(asked: _Asked) -> bool:
    """Whether it starts a consumer that is started however long that takes; with what is so then, not now."""
    return isinstance(asked.message, Consume) and asked.deadline == FOREVER


def _is_told_at_once(message: Any) -> bool:
    """Whether an unknown queue is an answer: its declaration is asked for again, its reservation is over."""
    return bool(getattr(message, "reservation", "") or getattr(message, "is_declared", type(message) is EndReservation))


def _rests_on_deliveries(message: Any) -> bool:
    """Whether it settles what consumers were delivered, in the session in which they were."""
    return bool(message.settled or message.returned)


class Requests:
    """The requests of a gateway to one shard.

    Args:
        dialer: the link to the shard.
        name: of the shard.
        before: called before a request is posted.
        exists: whether the topology has a queue of that id.
        is_wanted: whether a request that was not carried out still should be.
    """

    def __init__(
        self,
        dialer: Dialer[FromShard],
        name: str,
        before: Callable[[], None],
        exists: Callable[[int], bool],
        is_wanted: Callable[[Any], bool],
    ) -> None:
        self._dialer = dialer
        self._name = name
        self._before = before
        self._exists = exists
        self._is_wanted = is_wanted
        self._next_number = 1
        self._asked: dict[int, _Asked] = {}
        self._waiting: list[_Asked] = []
        self._early: list[_Asked] = []
        self._starts: dict[int, Reply] = {}  # by consumer: who is to hear of a start that the shard did not answer
        self._given_up: dict[int, _Asked] = {}  # their answers may still come
        self._answered = self._handled = -1  # as many of all messages that were posted are known to be carried out
        self._is_silent = False  # it let a deadline pass, and has answered nothing since
        self._waits_until = 0.0  # until when another host is awaited to lead the shard

    @property
    def is_quiet(self) -> bool:
        """Whether the shard has carried out all that was posted: a request was the last of it, and was answered."""
        return self._handled == self._dialer.posted

    @property
    def starting(self) -> set[int]:
        """The consumers that wait for the shard to be started for the first time."""
        return {asked.message.consumer for asked in self._waiting if isinstance(asked.message, Consume)}

    def reply_to_start(self, consumer: int) -> Reply | None:
        """Return who is to hear of a consumer's start, where the shard went away before it had answered."""
        return self._starts.get(consumer)

    def ask(self, message: Request[Any], reply: Reply, seconds: float = DECLARE_SECONDS) -> None:
        """Send a request. While the shard is away it waits; at the deadline it is refused.

        What may not be repeated is refused where the shard is not there, and where it goes away before it has
        answered. In between there is no deadline.

        Args:
            message: what is asked.
            reply: called with the result, a Got, or a RequestError.
            seconds: until it is given up.
        """
        reply = watched(reply)
        if self._dialer.is_open:
            self._send(_Asked(message, reply, time.monotonic() + seconds if message.may_repeat else math.inf))
        elif message.may_repeat:
            self._waiting.append(_Asked(message, reply, time.monotonic() + seconds))
        else:
            self._wait_or_refuse(_Asked(message, reply, math.inf))

    def look(self, message: Request[Any], reply: Reply, seconds: float) -> None:
        """Ask for what is only shown: a shard that let a deadline pass is left out until it answers something.

        One that stands still would hold up every list for `seconds`, and a scrape that takes many lists for minutes.

        Args:
            message: what is asked; it may be repeated.
            reply: as in `ask`; called at once where the shard is silent.
            seconds: until it is given up.
        """
        if self._is_silent:
            reply(Unavailable(f"{self._name} does not answer now; see `shardmq status`"))
        else:
            self.ask(message, reply, seconds)

    def _send(self, asked: _Asked) -> None:
        number = self._next_number
        self._next_number += 1
        self._before()
        self._asked[number] = asked
        self._dialer.post(Call(number, asked.message))
        asked.place = self._dialer.posted

    def on_answer(self, message: Answer[msgspec.Raw] | Refusal | Got) -> None:
        """Hand an answer to whoever asked."""
        self._is_silent = False
        asked = self._asked.pop(message.request, None)
        if asked is not None:
            self._answered = asked.place
        if asked is None:
            given_up = self._given_up.pop(message.request, None)
            if given_up is not None and isinstance(message, Got) and not given_up.message.auto_ack:
                self._before()
                self._dialer.post(Nack(given_up.message.consumer, [(message.first, message.first + 1)], requeue=True))
            return
        if isinstance(message, Refusal):
            queue: int | None = getattr(asked.message, "queue", None)
            is_missing = message.code == ReplyCode.NOT_FOUND and not _is_told_at_once(asked.message)
            if is_missing and queue is not None and self._exists(queue):
                # The shard is back, and the coordinator has not yet told it of the queues that are not durable.
                self._early.append(asked)
                return
            asked.reply(request_error(message.code, message.text))
        else:
            asked.reply(message if isinstance(message, Got) else result_of(asked.message, message))

    def all_taken_in(self) -> None:
        """Note that what came with answers was taken in, too: deliveries of the same pass stand behind them."""
        self._handled = self._answered

    def pass_over_newest(self) -> None:
        """Note that what was posted last has no effect that comes back: a shard that was quiet before is so still."""
        before = self._dialer.posted - 1
        self._handled += self._handled == before
        self._answered += self._answered == before

    def tick(self, now: float) -> None:
        """Give up requests whose time is over, and ask again for what came too early."""
        late = [number for number, asked in self._asked.items() if asked.deadline < now]
        self._given_up.update((number, self._asked[number]) for number in late)
        overdue = [self._asked.pop(number) for number in late]
        overdue += [asked for asked in self._waiting if asked.deadline < now]
        self._waiting = [asked for asked in self._waiting if asked.deadline >= now]
        early, self._early = self._early, []
        for asked in early:
            if asked.deadline < now:
                overdue.append(asked)
            elif self._is_wanted(asked.message):
                self._send(asked)
        self._is_silent = self._is_silent or bool(overdue)
        for asked in overdue:
            asked.reply(Unavailable(f"{self._name} did not answer in time; see `shardmq status`, then try again"))

    def opened(self) -> None:
        """Send what has waited for the shard."""
        self._is_silent = False
        self._waits_until = 0.0
        self._starts.clear()
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            if self._is_wanted(asked.message):
                asked.deadline = asked.deadline if asked.message.may_repeat else math.inf
                self._send(asked)

    def lost(self, lost: LinkLost) -> None:
        """Have requests wait for the shard to be back, and refuse those that may not be repeated."""
        self._answered = self._handled = -1
        self._waits_until = time.monotonic() + HANDOVER_SECONDS if lost.is_settled else 0.0
        for each in self._asked.values():
            each.losses += not lost.is_settled
        asked = [*self._early, *self._asked.values()]
        self._early, self._asked = [], {}
        # Nearly every request may be asked twice, and their deadlines stand. Consumers are started anew.
        starts = [each for each in asked if _is_start_of_a_consumer(each)]
        self._starts.update((each.message.consumer, each.reply) for each in starts)
        for each in [each for each in asked if not _is_start_of_a_consumer(each)]:
            if each.losses > LOSSES_MAX and each.deadline < FOREVER:
                each.reply(
                    Timeout(
                        f"{self._name} went away twice before it answered, and is not asked again, as this may be why: "
                        f"it was done or not, which is not certain; see its log ({lost.reason})"
                    )
                )
            elif each.message.may_repeat:
                self._waiting.append(each)
            elif not lost.is_settled:
                each.reply(
                    Timeout(
                        f"{self._name} went away before it answered: it was done or not, which is not certain "
                        f"({lost.reason})"
                    )
                )
            else:
                self._wait_or_refuse(each)
        self._given_up.clear()

    def _wait_or_refuse(self, asked: _Asked) -> None:
        """Have what may not be repeated, and was not carried out, wait for a shard that is about to be back."""
        if time.monotonic() >= self._waits_until:
            asked.reply(Unavailable(f"{self._name} is not there now; try again"))
        elif _rests_on_deliveries(asked.message):
            asked.reply(
                Unavailable(f"{self._name} moves to another host, and deliveries return: nothing was done; try again")
            )
        else:
            asked.deadline = self._waits_until
            self._waiting.append(asked)
