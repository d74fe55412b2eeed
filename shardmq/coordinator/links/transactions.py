"""A shard's part in transactions, as seen from the coordinator: what it is to prepare and to follow, how far it is."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from shardmq.bus.messages.base import Request
from shardmq.bus.messages.transactions import FollowDecision, PreparationProgress, Prepare
from shardmq.coordinator.links.asked import OnCounted, Preparation
from shardmq.errors import RequestError
from shardmq.limits import LINK_SILENCE_SECONDS

PROGRESS_SECONDS: Final = LINK_SILENCE_SECONDS
"""A shard that has told so lately how far it is gets on: it tells so about once a second."""


class ShardTransactions:
    """What a shard is to prepare and to follow, told again in every session until it is answered.

    Args:
        ask: sends a request in this session; the callback gets its result, or the error that refused it.
        is_open: whether there is a session.
    """

    def __init__(self, ask: Callable[[Request[Any], Callable[[Any], None]], None], is_open: Callable[[], bool]) -> None:
        self._ask = ask
        self._is_open = is_open
        self._to_prepare: dict[int, Preparation] = {}
        self._to_follow: dict[int, list[int]] = {}
        self._followed: list[int] = []
        self._refused: list[int] = []  # of those to follow

    @property
    def following(self) -> int:
        """How many decisions it has yet to follow."""
        return len(self._to_follow)

    def prepare(self, transaction: int, attempts: list[int], on_counted: OnCounted) -> None:
        """Ask how many messages of these attempts are there, now or when the shard is back.

        Args:
            transaction: its number.
            attempts: that are to be committed.
            on_counted: called once, unless `ignore_prepare` comes before.
        """
        self._to_prepare[transaction] = Preparation(attempts, on_counted)
        if self._is_open():
            self._send_prepare(transaction)

    def ignore_prepare(self, transaction: int) -> None:
        """Wait no more for the shard's counts. It goes on reading; where it is asked again, it goes on from there."""
        self._to_prepare.pop(transaction, None)

    def progress(self, transaction: int) -> PreparationProgress | None:
        """How far the shard is with a preparation; None where it is away, or has told nothing lately."""
        asked = self._to_prepare[transaction]
        return asked.progress if time.monotonic() - asked.told_at <= PROGRESS_SECONDS else None

    def on_progress(self, told: PreparationProgress) -> None:
        """Note how far the shard is with a preparation, unless that was given up."""
        asked = self._to_prepare.get(told.transaction)
        if asked is not None:
            asked.progress, asked.told_at = told, time.monotonic()

    def follow(self, transaction: int, attempts: list[int]) -> None:
        """Have a decision followed, now or when the shard is back."""
        self._to_follow[transaction] = attempts
        if self._is_open():
            self._send_follow(transaction)

    def follow_again(self) -> None:
        """Tell decisions again that the shard refused to follow."""
        refused, self._refused = self._refused, []
        for transaction in refused:
            self._send_follow(transaction)

    def take_followed(self) -> list[int]:
        """The transactions whose decision the shard has followed since the last call."""
        followed, self._followed = self._followed, []
        return followed

    def tell_all(self) -> None:
        """A session has opened: tell what was not answered."""
        for transaction in self._to_follow:
            self._send_follow(transaction)
        for transaction in self._to_prepare:
            self._send_prepare(transaction)

    def lost(self) -> None:
        """The session is over."""
        self._refused.clear()
        for asked in self._to_prepare.values():
            asked.progress = None

    def _send_prepare(self, transaction: int) -> None:
        asked = self._to_prepare[transaction]
        message = Prepare(transaction, asked.attempts, is_told=True)
        self._ask(message, partial(self._on_counted, transaction, asked))

    def _on_counted(self, transaction: int, asked: Preparation, counts: list[int] | RequestError) -> None:
        if self._to_prepare.get(transaction) is asked:  # not the answer to an earlier request that was given up
            del self._to_prepare[transaction]
            asked.on_counted(counts)

    def _send_follow(self, transaction: int) -> None:
        message = FollowDecision(transaction, self._to_follow[transaction])
        self._ask(message, partial(self._on_follow_answer, transaction))

    def _on_follow_answer(self, transaction: int, error: RequestError | None) -> None:
        if error is not None:
            self._refused.append(transaction)
        else:
            del self._to_follow[transaction]
            self._followed.append(transaction)
