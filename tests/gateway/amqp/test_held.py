"""What is held behind a request or an alarm: how much memory it takes."""

import struct
from collections.abc import Callable

import psutil
import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.encoder import frame, method_frame
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicConsume, BasicPublish
from shardmq.protocol.amqp.methods.connection import ConnectionBlocked
from shardmq.protocol.amqp.tables import wrapped

from .rawclient import RawClient
from .test_hostile import GROWTH_MAX, MEGABYTE, send_until_stuck, settled_rss

TABLES = b"\x01a" + wrapped(b"A", wrapped(b"F", b"\x01aV") * 15_000)
"""An entry with many small tables, 120 KB in all, which take 3 MB once they are decoded."""

FLOODS: dict[str, tuple[bytes, int]] = {
    "tables": (
        frame(1, 1, method_frame(1, BasicConsume(0, "q"))[7:-1][:-4] + struct.pack(">I", len(TABLES)) + TABLES),
        16 * MEGABYTE,
    ),
    "acks": (b"".join([method_frame(1, BasicAck(1000 + number * 2)) for number in range(50_000)]), 32 * MEGABYTE),
}
"""What a client sends over and over, and how much of it."""


@pytest.mark.parametrize("what", FLOODS)
def test_what_a_client_has_held_behind_an_alarm_costs_a_bounded_amount(
    start_broker: Callable[..., Broker], what: str
) -> None:
    broker = start_broker(shards=1, options=["--disk-free-limit", "1000TB"])
    gateway = psutil.Process(broker.pids["gateway-0"])
    flood, bytes_max = FLOODS[what]
    with RawClient(broker.port) as client:
        client.publish(BasicPublish(0, "", "q"), b"x")
        client.expect(ConnectionBlocked)
        before = settled_rss(gateway)
        assert send_until_stuck(client, flood, bytes_max) < bytes_max
        assert settled_rss(gateway) - before < GROWTH_MAX
