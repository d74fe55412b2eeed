"""An open connection: channels that come and go, who closes whom, signs of life, alarms. Real brokers, or a stage."""

import gc
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import (
    Ack,
    Alarm,
    Consume,
    Delivered,
    Publish,
    Release,
)
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.gateway.amqp.channel import AmqpChannel
from shardmq.gateway.amqp.connection import AmqpConnection
from shardmq.gateway.amqp.handshake import Handshake
from shardmq.gateway.links.consumer import Consumer
from shardmq.gateway.server import ProtocolDetector
from shardmq.gateway.session.channel import Channel
from shardmq.gateway.session.connection import CLOSING_SECONDS
from shardmq.gateway.session.session import Session
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp.encoder import content_frames, method_frame
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import (
    AccessRequest,
    AccessRequestOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionTune,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from shardmq.protocol.amqp.methods.topology import ExchangeDeclare, ExchangeDeclareOk, QueueDeclare, QueueDeclareOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.protocol.native.operations.administration import ConnectionExpel, LimitsPut
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

from .rawclient import HungUp, RawClient

StartStage = Callable[..., Stage]
FULL = Alarm("disk", True, "disk alarm on shard-0 set")
EMPTY = Alarm("disk", False, "disk alarm on shard-0 cleared")
EXPECTED_OPEN = "expected 'channel.open'"


# --- channels ---------------------------------------------------------------------------------------------------------


def test_a_channel_that_is_not_open_is_a_fault_of_the_connection(broker: Broker) -> None:
    for method in (BasicQos(0, 1), ChannelClose(200, "", 0, 0), ChannelCloseOk(), QueueDeclare(0, "q")):
        with RawClient(broker.port) as client:
            client.send(5, method)
            client.expect_close(ReplyCode.CHANNEL_ERROR, EXPECTED_OPEN, type(method))
    with RawClient(broker.port) as client:
        client.publish(BasicPublish(0, "", "q"), b"x", channel=5)
        client.expect_close(ReplyCode.CHANNEL_ERROR, EXPECTED_OPEN, BasicPublish)


def test_a_channel_opens_once(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, ChannelOpen())
        client.expect_close(ReplyCode.CHANNEL_ERROR, "second 'channel.open' seen", ChannelOpen)


def test_what_does_not_belong_on_channel_0_or_on_another_is_told_apart(broker: Broker) -> None:
    unexpected = "unexpected method in connection state running"
    for channel, method, code, text in (
        (0, ChannelOpen(), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, BasicQos(0, 1), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, ConnectionOpen("/"), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, ConnectionCloseOk(), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, ConnectionTune(1, 4096, 0), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, ConnectionBlocked("x"), ReplyCode.CHANNEL_ERROR, unexpected),
        (0, BasicPublish(0, "", "q"), ReplyCode.CHANNEL_ERROR, unexpected),
        (1, ConnectionClose(200, "", 0, 0), ReplyCode.COMMAND_INVALID, "unimplemented method"),
        (1, ChannelCloseOk(), ReplyCode.COMMAND_INVALID, "unimplemented method"),
        (1, QueueDeclareOk("q", 1, 1), ReplyCode.COMMAND_INVALID, "unimplemented method"),
    ):
        with RawClient(broker.port) as client:
            client.send(channel, method)
            client.expect_close(code, text, type(method))


def test_as_many_channels_as_were_agreed_on_whatever_their_numbers(broker: Broker) -> None:
    with RawClient(broker.port, channels=0, channel_max=3) as client:
        for number in (1, 2047, 65_535):
            client.ask(ChannelOpen(), ChannelOpenOk, number)
        client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk, 2047)
        client.ask(ChannelOpen(), ChannelOpenOk, 9)
        client.send(10, ChannelOpen())
        text = "number of channels opened (3) has reached the negotiated channel_max (3)"
        client.expect_close(ReplyCode.NOT_ALLOWED, text)


def test_channels_that_we_closed_count_until_the_client_has_heard(broker: Broker) -> None:
    with RawClient(broker.port, channel_max=2) as client:
        client.send(1, BasicAck(7))
        client.expect(ChannelClose)
        client.ask(ChannelOpen(), ChannelOpenOk, 2)
        client.send(3, ChannelOpen())
        client.expect_close(ReplyCode.NOT_ALLOWED)


def test_a_users_limit_of_channels_holds_across_protocols(broker: Broker) -> None:
    with NativeClient(broker).open() as admin:
        admin.ask(LimitsPut, "user", "guest", {"max-channels": 3})
        try:
            with RawClient(broker.port, channels=2) as client:
                client.send(3, ChannelOpen())
                client.expect_close(
                    ReplyCode.NOT_ALLOWED,
                    "number of channels opened for user 'guest' has reached the maximum allowed user limit of 3",
                )
        finally:
            admin.ask(LimitsPut, "user", "guest", {"max-channels": None})


def test_what_comes_for_a_channel_that_we_closed_is_ignored_until_close_ok(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, BasicAck(77))
        client.publish(BasicPublish(0, "", "q"), b"late", bytes(300_000))
        client.send(1, BasicAck(1), BasicNack(1), ChannelOpen(), QueueDeclare(0, "never"), BasicAck(2))
        client.expect_channel_close(ReplyCode.PRECONDITION_FAILED, method=BasicAck)
        client.ask(ChannelOpen(), ChannelOpenOk)
        client.send(1, QueueDeclare(0, "never", passive=True))
        client.expect_channel_close(ReplyCode.NOT_FOUND)


def test_both_may_close_a_channel_at_the_same_time(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.send(1, BasicAck(77), ChannelClose(200, "", 0, 0))
        client.expect(ChannelClose)
        client.expect(ChannelCloseOk)
        client.send(1, ChannelCloseOk(), ChannelOpen())
        client.expect(ChannelOpenOk)


def test_a_message_that_is_not_complete_when_its_channel_closes_is_dropped(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        declare = QueueDeclare(0, "incomplete", exclusive=True)
        client.ask(declare, QueueDeclareOk)
        begun = method_frame(1, BasicPublish(0, "", "incomplete")) + content_frames(1, b"\0\0", bytes(1000), 600)[:700]
        client.socket.sendall(method_frame(1, BasicAck(77)) + begun[: begun.rindex(b"\xce") + 1])
        client.expect_channel_close(ReplyCode.PRECONDITION_FAILED)
        client.ask(ChannelOpen(), ChannelOpenOk)
        assert client.ask(declare, QueueDeclareOk).message_count == 0


def test_confirms_are_told_before_their_channel_closes(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage.port) as client:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "nowhere"), b"unroutable")
        client.send(1, ChannelClose(200, "", 0, 0))
        assert client.expect(BasicAck) == BasicAck(1)
        client.expect(ChannelCloseOk)


def test_a_channel_that_is_opened_again_hears_nothing_of_what_was_published_before(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "q"), b"of the first channel", b"too")
        stage.expect(0, Publish)
        client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk)
        client.ask(ChannelOpen(), ChannelOpenOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "q"), b"of the second")
        stage.confirm(0, 1)
        stage.expect(0, Publish)
        client.ask(ChannelOpen(), ChannelOpenOk, 2)  # nothing before it
        stage.confirm(0, 2)
        assert client.expect(BasicAck) == BasicAck(1)


def test_a_channel_that_both_close_is_answered_though_the_client_did_so_behind_a_request(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.ask(QueueDeclare(0, "short-lived", exclusive=True), QueueDeclareOk)
        client.send(1, QueueDeclare(0, "short-lived", exclusive=True, auto_delete=True), ChannelClose(200, "", 0, 0))
        client.expect_channel_close(ReplyCode.PRECONDITION_FAILED)
        client.expect(ChannelCloseOk)
        client.ask(ChannelOpen(), ChannelOpenOk)


def test_thousands_of_requests_behind_one_are_carried_out(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        declare = ExchangeDeclare(0, "amq.direct", "direct", passive=True)
        client.send(1, QueueDeclare(0, "", exclusive=True), *[declare] * 5000)
        client.expect(QueueDeclareOk)
        for _ in range(5000):
            client.expect(ExchangeDeclareOk)


def test_update_secret_is_answered(broker: Broker) -> None:
    with RawClient(broker.port) as client:
        client.ask(ConnectionUpdateSecret(b"new", "expired"), ConnectionUpdateSecretOk, 0)


# --- closing ----------------------------------------------------------------------------------------------------------


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
        stage.shards[0].say(Answer(stage.shards[0].heard[0].request, (0, 0)))
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


def consuming(stage: Stage, client: RawClient, deliveries: int = 0) -> int:
    client.send(1, BasicConsume(0, "q", "c"))
    asked = stage.expect(0, Consume)
    stage.say(0, Answer(asked.request))
    client.expect(BasicConsumeOk)
    if deliveries:
        stage.say(
            0, Delivered(asked.consumer, 0, False, RecordBatch("", "q", 0, 0, 1, 1, deliveries, packed(deliveries)))
        )
        for _ in range(deliveries):
            client.expect(BasicDeliver)
    return asked.consumer


def packed(count: int) -> bytes:
    return pack(None, b"x") * count


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


# --- alarms -----------------------------------------------------------------------------------------------------------


def alarmed(start_stage: StartStage) -> Stage:
    stage = start_stage([("q", 0, {})])
    stage.say(0, FULL)
    stage.until(lambda: bool(stage.state.alarms.reason))
    return stage


def published(stage: Stage) -> int:
    return sum(said.run.count for said in stage.shards[0].heard if isinstance(said, Publish))


def test_who_publishes_under_an_alarm_is_told_once_and_held_in_order(start_stage: StartStage) -> None:
    stage = alarmed(start_stage)
    with RawClient(stage.port, channels=2) as client:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "q"), b"1", b"2")
        client.send(1, BasicQos(0, 9))
        client.publish(BasicPublish(0, "", "q"), b"3")
        assert client.expect(ConnectionBlocked).reason == "low on disk: disk alarm on shard-0 set"
        client.ask(BasicQos(0, 5), BasicQosOk, 2)  # channels that publish nothing go on
        assert published(stage) == 0
        stage.say(0, EMPTY)
        client.expect(ConnectionUnblocked)
        client.expect(BasicQosOk)
        stage.until(lambda: published(stage) == 3)
        stage.say(0, FULL)
        stage.until(lambda: bool(stage.state.alarms.reason))
        client.publish(BasicPublish(0, "", "q"), b"4")
        client.expect(ConnectionBlocked)


def test_who_can_not_hear_of_alarms_is_held_all_the_same_and_who_does_not_publish_hears_nothing(
    start_stage: StartStage,
) -> None:
    stage = alarmed(start_stage)
    with RawClient(stage.port, capabilities={}) as deaf, RawClient(stage.port) as idle:
        deaf.publish(BasicPublish(0, "", "q"), b"1")
        deaf.ask(ChannelOpen(), ChannelOpenOk, 2)
        assert published(stage) == 0
        stage.say(0, EMPTY)
        stage.until(lambda: published(stage) == 1)
        for client in (deaf, idle):
            client.ask(BasicQos(0, 5), BasicQosOk)


def test_acks_go_on_under_an_alarm(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        consuming(stage, client, deliveries=2)
        stage.say(0, FULL)
        stage.until(lambda: bool(stage.state.alarms.reason))
        client.send(1, BasicAck(1))
        assert stage.expect(0, Ack).ranges == [(0, 1)]
        client.publish(BasicPublish(0, "", "q"), b"x")
        client.expect(ConnectionBlocked)
        client.send(1, BasicAck(2))
        stage.say(0, EMPTY)
        assert stage.expect(0, Ack).ranges == [(1, 2)]
        assert published(stage) == 1


def test_what_was_published_under_an_alarm_goes_on_when_its_channel_or_connection_is_closed(
    start_stage: StartStage,
) -> None:
    stage = alarmed(start_stage)
    with RawClient(stage.port) as client:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish(BasicPublish(0, "", "q"), b"1", b"2")
        client.expect(ConnectionBlocked)
        client.send(1, ChannelClose(200, "", 0, 0))
        client.expect(ChannelCloseOk)
        client.ask(ChannelOpen(), ChannelOpenOk)
        client.publish(BasicPublish(0, "", "q"), b"3")
        client.hang_up()
    stage.until(lambda: published(stage) == 3)


# --- nothing is left --------------------------------------------------------------------------------------------------


LEFT = (AmqpConnection, AmqpChannel, Handshake, FrameReader, ProtocolDetector, Session, Channel, Consumer)


def test_connections_that_end_are_gone_at_once_and_not_when_the_collector_comes(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    gc.collect()
    gc.disable()
    try:
        for end in (
            RawClient.hang_up,
            RawClient.reset,
            lambda client: client.send(1, ChannelOpen()),
            lambda client: client.socket.sendall(b"garbage that is no frame at all"),
            lambda client: client.socket.shutdown(socket.SHUT_WR),
        ):
            with RawClient(stage.port) as client:
                consuming(stage, client, deliveries=3)
                client.publish(BasicPublish(0, "", "q"), b"x")
                client.send(1, BasicAck(1))
                end(client)
                if client.socket.fileno() >= 0:
                    client.rest()
            stage.expect(0, Release)
            stage.confirm(0, published(stage))
        for data in (b"A", b"AMQP", b"AMQPXXXX", b""):
            with socket.create_connection(("127.0.0.1", stage.port)) as stranger:
                stranger.sendall(data)
        stage.until(lambda: not [each for each in gc.get_objects() if isinstance(each, LEFT)])
    finally:
        gc.enable()


def test_ten_thousand_channels_that_come_and_go_leave_nothing_behind(broker: Broker) -> None:
    gateway = psutil.Process(broker.pids["gateway-0"])
    steps = (ChannelOpen(), BasicQos(0, 7), ConfirmSelect(), ChannelClose(200, "", 0, 0))
    cycle = b"".join([method_frame(1, method) for method in steps])

    def churn(client: RawClient, rounds: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            saying = pool.submit(client.socket.sendall, cycle * rounds)
            for _ in range(rounds):
                for kind in (ChannelOpenOk, BasicQosOk, ConfirmSelectOk, ChannelCloseOk):
                    client.expect(kind)
            saying.result()

    with RawClient(broker.port, channels=0) as client:
        churn(client, 500)
        before = gateway.memory_info().rss
        churn(client, 10_000)
        assert gateway.memory_info().rss - before < 16 << 20
