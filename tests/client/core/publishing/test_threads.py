"""What threads add without a lock while another one turns to another batch, or takes all: every step is tried."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from msgspec import Raw

from shardmq.client.core.batching import PublishBatch, PublishOptions
from shardmq.client.core.publishing import builder, collector, keyed, mixed
from shardmq.client.core.publishing.builder import BatchBuilder, Content
from shardmq.client.core.publishing.collector import UNMIXED_RECORDS, BatchCollector
from shardmq.client.core.publishing.mixed import MixedBuilder
from shardmq.message import keyed_records
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import KEYED

TRACED = {module.__file__ for module in (builder, collector, keyed, mixed)}
TYPED, TRANSIENT = Properties(type="a"), Properties(delivery_mode=1)


class OtherThread:
    """A thread that publishes as `Publisher.publish` does: it reads `filling`, adds to it, and looks again.

    Args:
        collecting: what it publishes to.
        lines: before which line of the traced code it does each of the three, counted from 1.
    """

    def __init__(self, collecting: BatchCollector, lines: tuple[int, int, int]) -> None:
        self._collecting = collecting
        self._reads, self._adds, self._looks = lines
        self._filling = collecting.filling
        self._head: Raw | None = None
        self.line = 0
        self.has_added = False
        self._is_left_behind = False

    def trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            self.line += 1
            self._step()
        return self.trace

    def _step(self) -> None:
        if self.line == self._reads:
            self._filling = self._collecting.filling
            self._head = next(iter(self._filling.heads.values()), None)
        if self.line == self._adds and (self._head is not None or not isinstance(self._filling, MixedBuilder)):
            self._filling.bodies.append(waiting(self._filling, self._head, b"other", "k"))
            self.has_added = True
        if self.line == self._looks:
            self._is_left_behind = self.has_added and self._filling is not self._collecting.filling

    def batches(self) -> list[PublishBatch]:
        """What it sends, as it has got the lock."""
        return self._collecting.sweep(self._filling) if self._is_left_behind else []


def waiting(filling: BatchBuilder, head: Raw | None, body: bytes, key: str) -> Content:
    if head is None:
        return body
    return (head, body, key) if filling.is_keyed else (head, body)


def bodies_of(batch: PublishBatch) -> list[bytes]:
    _, _, flags, count, packed, *_ = batch
    unpack = keyed_records.unpack if flags & KEYED else records.unpack
    return [record.body for record in unpack(packed, count)]


Act = Callable[[BatchCollector], Any]
Route = tuple[str, str, Properties | None]

ACTS: dict[str, Act] = {
    "other properties": lambda collecting: collecting.turn_to("", "k", TYPED),
    "other flags": lambda collecting: collecting.turn_to("", "k", TRANSIENT),
    "another queue": lambda collecting: collecting.turn_to("", "l", None),
    "another exchange": lambda collecting: collecting.turn_to("x", "k", None),
    "another key of it": lambda collecting: collecting.turn_to("x", "l", None),
    "delayed": lambda collecting: collecting.turn_to("", "k", None, PublishOptions(delay_ms=5)),
    "taken": BatchCollector.take,
}
ROUTES: list[Route] = [("", "k", None), ("", "k", TYPED), ("x", "k", None)]


def run(act: Act, route: Route, count: int, lines: tuple[int, int, int]) -> OtherThread:
    """Collect messages of a route and do something, while another thread publishes; nothing is lost."""
    collecting = BatchCollector()
    sent: list[PublishBatch] = []
    collecting.turn_to("", "k", None)
    head = collecting.turn_to(*route)
    for number in range(count):
        filling = collecting.filling
        filling.bodies.append(waiting(filling, head, b"%d" % number, route[1]))
    other = OtherThread(collecting, lines)
    before = sys.gettrace()
    sys.settrace(other.trace)
    try:
        done = act(collecting)
    finally:
        sys.settrace(before)
    sent += done if isinstance(done, list) else []
    sent += other.batches()
    sent += collecting.take()
    bodies = [body for batch in sent for body in bodies_of(batch)]
    assert bodies.count(b"other") == other.has_added
    assert [body for body in bodies if body != b"other"] == [b"%d" % number for number in range(count)]
    return other


@pytest.mark.parametrize("count", [1, UNMIXED_RECORDS])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("act", ACTS)
def test_what_is_added_at_any_step_is_sent_once(act: str, route: Route, count: int) -> None:
    lines = run(ACTS[act], route, count, (0, 0, 0)).line
    assert lines > 5
    added = 0
    for adds in range(1, lines + 1):
        for steps in ((adds, adds, adds), (1, adds, adds), (1, adds, lines)):
            added += run(ACTS[act], route, count, steps).has_added
    assert added > lines
