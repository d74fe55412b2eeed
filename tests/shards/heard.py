"""What a shard says to a gateway, as the gateway takes it: deliveries of shared records are whole."""

from collections.abc import Iterable
from typing import Any

from shardmq.bus.link import LinkLost
from shardmq.bus.messages.columns import Deliveries
from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.links.common_deliveries import CommonDeliveries


class Heard:
    """One session after another with a shard."""

    def __init__(self) -> None:
        self._whole: list[Any] = []
        self._common = CommonDeliveries(self._whole.append)

    def whole(self, events: Iterable[Any]) -> list[Any]:
        for event in events:
            if type(event) is LinkLost:
                self._common.clear()
            if type(event) is Deliveries:
                for consumer, first, batch in zip(event.consumers, event.firsts, event.batches, strict=True):
                    self._whole.append(Delivered(consumer, first, False, batch))
                continue
            self._common.handlers.get(type(event), self._whole.append)(event)
        taken = self._whole[:]
        self._whole.clear()
        return taken
