"""Where readers of streams begin; the shard is the test's."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.shard import Consume
from shardmq.protocol.native.operations.basic import BasicConsume
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


def test_an_age_is_counted_by_the_clock_that_messages_are_stamped_by(
    start_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = start_stage([("s", 0, {"x-queue-type": "stream"})])
    arguments: dict[str, Any] = {"x-stream-offset": "1h"}
    with RawClient(stage).open() as client:
        now_ms = time.time_ns() // 1_000_000
        monkeypatch.setattr(time, "time", lambda: 1e9)  # somebody sets the machine's clock
        client.send(BasicConsume(3, 1, "s", "c", False, 10, arguments))
        reading = stage.expect(0, Consume).reading
    assert reading is not None
    assert reading.begin == "time"
    assert abs(now_ms - HOUR_MS - reading.number) < MINUTE_MS
