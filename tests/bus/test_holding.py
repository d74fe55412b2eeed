"""What links flush waits for its record to be released, and then leaves in the order in which it was said."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardmq.bus.dialer import Dialer
from shardmq.bus.holding import HeldEnvelopes
from shardmq.bus.link import LinkLost, LinkOpened
from shardmq.bus.listener import Listener
from shardmq.bus.messages.base import Answer, Call
from shardmq.bus.messages.shard import Confirmed, Purge, ShardEvent, ToShard
from shardmq.bus.poller import Poller, context

HEARD: Any = ShardEvent | Answer[Any]
PATIENCE_SECONDS = 60.0


class Pair:
    """A primary whose links hold what they flush, and a gateway."""

    def __init__(self, folder: Path) -> None:
        self.context = context()
        self.index = 0
        self.held = HeldEnvelopes(lambda: self.index)
        self.listener: Listener[Any] = Listener(self.context, f"ipc://{folder}/shard-0", "shard", "shard-0", ToShard)
        self.listener.held = self.held
        self.dialer = self.called("gateway-0")
        self.said: list[Any] = []
        self.heard: list[Any] = []
        self.until(lambda: self.listener.peers and self.dialer.is_open)

    def called(self, name: str) -> Dialer[Any]:
        return Dialer(self.context, self.listener.address, "gateway", name, HEARD, "shard-0")

    def until(self, true: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        poller = Poller([self.listener.socket, self.dialer.socket])
        while not true():
            assert time.monotonic() < deadline, (self.said, self.heard)
            now = time.monotonic()
            self.said += [*self.listener.tick(now), *self.listener.receive()]
            self.heard += [*self.dialer.tick(now), *self.dialer.receive()]
            poller.wait(0.01)

    def confirm(self, count: int, index: int) -> None:
        """Flush a confirm that rests on a record."""
        self.index = index
        self.listener.peers[0].post(Confirmed(count))
        assert self.listener.flush()

    @property
    def confirmed(self) -> list[int]:
        return [event.upto for event in self.heard if isinstance(event, Confirmed)]

    def close(self) -> None:
        self.dialer.close()
        self.listener.close()
        self.context.term()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def test_what_is_flushed_waits_for_its_record_and_keeps_its_order(pair: Pair) -> None:
    pair.confirm(1, index=1)
    pair.confirm(2, index=2)
    pair.confirm(3, index=2)
    pair.confirm(4, index=3)
    assert not pair.held.release(0)
    assert not pair.dialer.has_news
    assert pair.held.release(2)
    pair.until(lambda: len(pair.confirmed) == 3)
    assert pair.confirmed == [1, 2, 3]
    assert not pair.dialer.has_news
    assert pair.held.release(3)
    pair.until(lambda: len(pair.confirmed) == 4)
    assert not pair.held.release(9)


def test_a_session_that_ended_hears_nothing_of_what_was_held_for_it(pair: Pair) -> None:
    pair.confirm(1, index=1)
    pair.dialer.end("for the test")
    pair.until(lambda: [event for _, event in pair.said].count(LinkOpened("gateway", "gateway-0")) == 2)
    pair.confirm(7, index=2)
    assert pair.held.release(2)
    pair.until(lambda: pair.confirmed)
    assert pair.confirmed == [7]


def test_a_dialer_holds_what_it_says_too_and_forgets_it_with_the_session(pair: Pair) -> None:
    pair.dialer.held = pair.held
    pair.index = 5
    pair.dialer.post(Call(1, Purge(1)))
    assert pair.dialer.flush()
    assert not pair.held.release(4)
    assert pair.held.release(5)
    pair.until(lambda: any(isinstance(event, Call) for _, event in pair.said))
    pair.dialer.post(Call(2, Purge(2)))
    pair.dialer.flush()
    pair.dialer.end("for the test")
    assert pair.held.release(5)
    pair.until(lambda: any(isinstance(event, LinkLost) for event in pair.heard) and pair.dialer.is_open)
    assert [event.request for _, event in pair.said if isinstance(event, Call)] == [1]


def test_a_listener_that_hands_over_ends_sessions_behind_all_that_it_said_and_takes_nothing_in(pair: Pair) -> None:
    pair.confirm(1, index=1)
    pair.listener.settle("another host leads")
    pair.dialer.post(Call(1, Purge(1)))
    pair.dialer.flush()
    assert pair.held.release(0) is False
    assert pair.dialer.is_open
    assert pair.held.release(1)
    pair.until(lambda: any(isinstance(event, LinkLost) for event in pair.heard))
    assert [type(event) for event in pair.heard[-2:]] == [Confirmed, LinkLost]
    assert pair.heard[-1].is_settled
    assert not any(isinstance(event, Call) for _, event in pair.said)
    assert [lost for _, lost in pair.listener.resume("nobody else leads")]
    pair.until(lambda: pair.dialer.is_open)
    pair.listener.end_all("for the test")
    pair.until(lambda: isinstance(pair.heard[-1], LinkLost))
    assert not pair.heard[-1].is_settled


def test_a_session_whose_end_was_not_released_is_not_settled(pair: Pair) -> None:
    pair.confirm(1, index=1)
    pair.listener.settle("another host leads")
    assert pair.listener.resume("nobody else leads")
    pair.until(lambda: any(isinstance(event, LinkLost) for event in pair.heard))
    assert not pair.confirmed
    assert not pair.heard[-1].is_settled
    pair.held.release(1)
    pair.until(lambda: pair.dialer.is_open)
