"""Who closes a connection, and what its client hears of it and has to the end. Real brokers, or a stage."""

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import (
    Delivered,
    Get,
    Publish,
    Release,
)
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.gateway.session.client_socket import UNREAD_BYTES_MAX
from shardmq.gateway.session.connection import CLOSING_SECONDS
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp.encoder import content_frames, method_frame
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicPublish,
)
from shardmq.protocol.amqp.methods.connection import (
    AccessRequest,
    AccessRequestOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
)
from shardmq.protocol.amqp.methods.topology import QueueDeclare, QueueDeclareOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.protocol.native.operations.administration import ConnectionExpel
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.topology.changes import (
    ConnectionClosed,
    QueueAdded,
    QueueRemoved,
    UserRemoved,
    VhostRemoved,
)
from shardmq.topology.commands import DeleteQueue
from shardmq.topology.entities import Queue
from tests.gateway.rawclient import RawClient as NativeClient
from tests.gateway.stage import Stage

from .deliveries import consuming
from .rawclient import HungUp, RawClient

StartStage = Callable[..., Stage]
LARGE_BYTES = UNREAD_BYTES_MAX // 2
"""Of three messages of this size, a client has more to read than it is let get behind."""


def test_a_client_that_closes_is_answered_and_sees_the_end(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.hang_up()


def test_what_was_asked_before_the_client_closes_is_done_first(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        publish = method_frame(1, BasicPublish(0, "", "farewell")) + content_frames(1, b"\0\0", b"x", 4096)
        client.socket.sendall(
            method_frame(1, QueueDeclare(0, "farewell", nowait=True))
            + publish * 3
            + method_frame(0, ConnectionClose(200, "", 0, 0))
        )
        client.expect(ConnectionCloseOk)
        client.expect_end()
    with RawClient(broker.port) as client:
        declared = QueueDeclare(0, "farewell", passive=True)
        assert client.ask(declared, QueueDeclareOk).message_count == 3


def test_what_was_published_before_the_client_closes_is_done_also_where_it_has_much_to_read(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        consumer = consuming(stage, client)
        publish = method_frame(1, BasicPublish(0, "", "q")) + content_frames(1, b"\0\0", b"x", 4096)
        client.socket.sendall(
            method_frame(1, BasicGet(0, "q", no_ack=True))
            + publish * 3
            + method_frame(0, ConnectionClose(200, "", 0, 0))
        )
        asked = stage.expect(0, Get)
        RawClient(stage.port).hang_up()  # the gateway has read the rest by then
        large = [RecordBatch("", "q", 0, 0, 1, 1 + number, 1, pack(None, bytes(LARGE_BYTES))) for number in range(3)]
        deliveries = [Delivered(consumer, number, False, batch) for number, batch in enumerate(large)]
        stage.say(0, *deliveries)
        stage.until(lambda: stage.state.unread_bytes > UNREAD_BYTES_MAX)
        stage.say(0, Answer(stage.request(asked), None))
        stage.until(lambda: not stage.state.links[0]._requests._asked)
        for _ in large:
            client.expect(BasicDeliver)
        client.expect(BasicGetEmpty)
        client.expect(ConnectionCloseOk)
        client.expect_end()
        assert stage.expect(0, Publish).batch.count == 3


def test_both_may_close_the_connection_at_the_same_time(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, ChannelOpen())
        client.send(0, ConnectionClose(200, "", 0, 0))
        client.expect(ConnectionClose)
        client.expect(ConnectionCloseOk)
        client.send(0, ConnectionCloseOk())
        client.expect_end()


def test_a_client_that_is_told_has_time_and_whatever_else_it_says_is_ignored(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, ChannelOpen())
        client.expect(ConnectionClose)
        client.send(1, QueueDeclare(0, "too-late"), ChannelOpen())
        client.publish(BasicPublish(0, "", "too-late"), bytes(1 << 20))
        client.send(0, ConnectionCloseOk())
        client.expect_end()
    with RawClient(broker.port) as client:
        client.send(1, QueueDeclare(0, "too-late", passive=True))
        client.expect_channel_close(ReplyCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("mistake", "code"),
    [
        (b"\x01\0\1\0\0\0\4abcdX", ReplyCode.FRAME_ERROR),
        (method_frame(1, ChannelOpen()), ReplyCode.CHANNEL_ERROR),
        (method_frame(0, ConnectionClose(200, "", 0, 0)), None),
    ],
)
def test_a_client_is_told_whatever_else_comes_while_its_exclusive_queues_go(
    start_stage: StartStage, mistake: bytes, code: ReplyCode | None
) -> None:
    stage = start_stage([])
    with RawClient(stage.port) as client:
        client.send(1, QueueDeclare(0, "mine", exclusive=True, nowait=True))
        stage.until(lambda: bool(stage.commands))
        owner = stage.commands[0].owner  # the stage has only noted it, and the gateway asks again
        stage.tell(QueueAdded(Queue("/", "mine", 1, 0, False, {}, owner=owner)))
        stage.until(lambda: bool(stage.shards[0].heard))
        stage.shards[0].say(Answer(stage.request(stage.shards[0].heard[0]), (0, 0)))
        client.ask(AccessRequest(""), AccessRequestOk)
        client.socket.sendall(mistake)
        stage.until(lambda: any(isinstance(command, DeleteQueue) for command in stage.commands))
        client.socket.sendall(b"\x01\0\1\0\0\0\4abcdX")
        RawClient(stage.port).hang_up()  # the gateway has read that by then
        stage.tell(QueueRemoved("/", "mine"))
        if code is None:
            client.expect(ConnectionCloseOk)
        else:
            assert client.expect(ConnectionClose).reply_code == code
        client.expect_end()


def test_a_client_that_never_answers_is_hung_up_on(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, ChannelOpen())
        client.expect(ConnectionClose)
        began = time.monotonic()
        with pytest.raises((HungUp, ConnectionResetError)):
            client.hear()
        assert CLOSING_SECONDS - 2 < time.monotonic() - began < CLOSING_SECONDS + 20


def test_the_text_is_not_lost_to_a_reset_however_much_the_client_is_saying(broker: Broker) -> None:
    behind = method_frame(1, BasicPublish(0, "", "q")) + content_frames(1, b"\0\0", bytes(100_000), 131_072)
    for fault in (b"\x01\0\1\0\0\0\4abcdX", method_frame(1, ChannelOpen())):
        with RawClient(broker.port, receive_buffer=4096) as client, ThreadPoolExecutor(1) as pool:
            saying = pool.submit(client.socket.sendall, fault + behind * 100)
            assert client.expect(ConnectionClose).reply_code in (501, 504)
            saying.result()
            client.send(0, ConnectionCloseOk())
            client.expect_end()


def test_what_a_client_had_is_given_back_before_it_answers(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        consumer = consuming(stage, client)
        client.send(1, ChannelOpen())
        client.expect(ConnectionClose)
        assert stage.expect(0, Release) == Release(consumer)


def test_connections_are_closed_for_administrators_by_the_name_in_lists(broker: Broker) -> None:
    with NativeClient(broker).open() as admin, RawClient(broker.port) as client:
        port = client.socket.getsockname()[1]
        row = next(row for row in admin.ask(TopologyList, "connections") if row["peer_port"] == port)
        assert (row["protocol"], row["channels"], row["state"]) == ("AMQP 0-9-1", 1, "running")
        admin.ask(ConnectionExpel, row["name"], "maintenance at noon")
        client.expect_close(ReplyCode.CONNECTION_FORCED, "maintenance at noon")
        assert {row["protocol"] for row in admin.ask(TopologyList, "connections")} == {"shardmq"}


def test_who_loses_user_virtual_host_or_favour_is_told(start_stage: StartStage) -> None:
    for change, words in (
        (UserRemoved("guest"), "user 'guest' was deleted"),
        (VhostRemoved("/"), "virtual host '/' was deleted"),
    ):
        stage = start_stage([("q", 0, {})])
        with RawClient(stage.port) as client:
            stage.tell(change)
            client.expect_close(ReplyCode.CONNECTION_FORCED, words)
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port):
        stage.tell(ConnectionClosed("nobody.1", "who?"))


def test_lists_say_what_clients_call_themselves_and_how_their_channels_are(broker: Broker) -> None:
    said = {"product": "raw", "version": "1.2", "connection_name": "listed", "odd": [b"\xff", 1.5, None]}
    with RawClient(broker.port, is_open=False) as client, NativeClient(broker).open() as admin:
        client.greet()
        client.login(**said)
        client.tune()
        client.send(0, ConnectionOpen("/"))
        client.hear()
        for number in (1, 2):
            client.ask(ChannelOpen(), ChannelOpenOk, number)
        client.ask(ConfirmSelect(), ConfirmSelectOk, 2)
        rows = admin.ask(TopologyList, "connections")
        row = next(row for row in rows if row["protocol"] == "AMQP 0-9-1")
        shown = row["client_properties"]
        assert (shown["connection_name"], shown["product"], shown["odd"][1:]) == ("listed", "raw", [1.5, None])
        channels = [each for each in admin.ask(TopologyList, "channels") if each["connection"] == row["name"]]
        modes = {each["number"]: (each["confirm"], each["transactional"]) for each in channels}
        assert modes == {1: (False, False), 2: (True, False)}


def test_a_broker_that_stops_answers_publishes_and_then_says_so(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port) as client:
        client.ask(QueueDeclare(0, "last", durable=True), QueueDeclareOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "last"), *[b"x"] * 500, properties=b"\x10\x00\x02")
        confirmed = 0
        while confirmed < 1:
            confirmed = client.expect(BasicAck).delivery_tag
        broker.kill("gateway-0", signal.SIGTERM)
        while not isinstance(method := client.hear().method, ConnectionClose):
            assert isinstance(method, BasicAck)
            confirmed = method.delivery_tag
        assert (method.reply_code, method.reply_text) == (
            320,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'",
        )
        assert confirmed == 500
        client.send(0, ConnectionCloseOk())
        client.expect_end()
