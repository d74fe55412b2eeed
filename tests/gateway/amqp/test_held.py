"""What is held behind a request or an alarm: how much memory it takes, and when it goes on."""

import struct
from collections.abc import Callable

import psutil
import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import Alarm, Get, Publish
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.encoder import content_frames, frame, method_frame
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicConsume, BasicGet, BasicGetEmpty, BasicPublish
from shardmq.protocol.amqp.methods.connection import ChannelClose, ChannelCloseOk, ConnectionBlocked
from shardmq.protocol.amqp.tables import wrapped
from tests.gateway.stage import Stage

from .rawclient import RawClient
from .test_hostile import GROWTH_MAX, MEGABYTE, send_until_stuck, settled_rss

FULL = Alarm("disk", True, "disk alarm on shard-0 set")
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


def test_a_channel_can_be_closed_also_when_the_alarm_comes_behind_its_close(start_stage: Callable[..., Stage]) -> None:
    stage = start_stage([("q", 0, {})])
    publish = method_frame(1, BasicPublish(0, "", "q")) + content_frames(1, b"\0\0", b"x", 4096)
    with RawClient(stage.port) as client:
        client.socket.sendall(
            method_frame(1, BasicGet(0, "q", no_ack=True)) + publish + method_frame(1, ChannelClose(200, "", 0, 0))
        )
        asked = stage.expect(0, Get)
        RawClient(stage.port).hang_up()  # the gateway has read the rest by then
        stage.say(0, FULL)
        stage.until(lambda: bool(stage.state.alarms.reason))
        stage.say(0, Answer(stage.request(asked), None))
        client.expect(BasicGetEmpty)
        client.expect(ConnectionBlocked)
        client.expect(ChannelCloseOk)
        assert stage.expect(0, Publish).batch.count == 1
