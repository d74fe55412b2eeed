"""Whether consumers have all of what is posted: then clients are written to before the shard."""

from typing import Any

import pytest

from shardmq.bus.messages.base import BusMessage
from shardmq.bus.messages.columns import MayForward
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.publishes.publish_window import PublishWindow
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch

PLANS = {queue: PublishPlan.of((queue,), "", f"q{queue}", 0, 0, None) for queue in (1, 2)}
RECORD = pack(None, b"m")


class OpenLink:
    """The end of a link that is open."""

    is_open = True

    def post(self, message: BusMessage) -> None:
        pass


class Taker:
    """A channel that takes everything."""

    unacked = 0

    def take_forwarded(self, _consumer: Consumer, _first: int, _batch: RecordBatch) -> bool:
        return True


class Publisher:
    """A channel that publishes."""

    is_confirming = True

    def confirm(self, _requests: list[tuple[int, int]]) -> None:
        pass


def stamp(batch: RecordBatch) -> None:
    batch.serial = 1


@pytest.mark.parametrize(("queues", "have_all"), [([1], True), ([1, 2], False), ([2, 1], False), ([2], False)])
def test_consumers_have_all_where_nothing_was_passed_over(queues: list[int], have_all: bool) -> None:
    anything: Any = OpenLink()
    window = PublishWindow(anything, "shard-0", lambda _queue: True, stamp)
    taker: Any = Taker()
    consumer = Consumer(taker, anything, 7, 1, "c")
    window.forwarding.may_begin = True
    window.forwarding.joined(consumer)
    publisher: Any = Publisher()
    window.add_planned(publisher, 1, PLANS[1], RECORD)
    window.send()
    window.forwarding.on_may_forward(MayForward([7], [5], 1), {7: consumer})
    for request, queue in enumerate(queues, 2):
        window.add_planned(publisher, request, PLANS[queue], RECORD)
    assert window.forward() is have_all
    window.send()
    window.add_planned(publisher, 9, PLANS[1], RECORD)
    assert window.forward()  # what went to the shard before counts no more
