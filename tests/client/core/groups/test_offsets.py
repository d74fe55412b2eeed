"""Where a group is, in some partitions: only brokers that know such a question are asked it."""

import pytest

from shardmq.client.api.url import parse
from shardmq.client.core.channel import PendingRequest
from shardmq.client.core.connection import ConnectionCore
from shardmq.client.core.requests import groups
from shardmq.protocol.native.frames import FrameReader
from shardmq.protocol.native.operations.connection import Ok
from shardmq.protocol.native.operations.offsets import GroupOffsets
from tests.client.core.harness import Waiter, hear, sent


@pytest.mark.parametrize("knows", [True, False])
def test_an_earlier_broker_is_asked_for_all_partitions(knows: bool) -> None:
    core = ConnectionCore(parse("shardmq://localhost/"), 60)
    core.open({}, Waiter())
    told = {"product": "shardmq", "heartbeat": 60}
    hear(core, Ok(1, 0, {**told, "partition_offsets": True} if knows else told))
    sent(core)
    for partitions in ([3], None):
        operation = groups.group_offsets("orders", "billing", partitions).operation
        core.state.send_request(PendingRequest(None, operation, Waiter(), lambda _: None))
        [(_, payload)] = FrameReader().feed(b"".join(core.state.outgoing))
        assert payload[0] == 0x90 + (5 if knows else 4), "fields of the frame"
        assert sent(core) == [
            GroupOffsets(core.state.last_request, 0, "orders", "billing", partitions if knows else None)
        ]
