"""An open connection: channels that come and go, who closes whom, signs of life, alarms. Real brokers, or a stage."""

import gc
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from shardmq.bus.messages.shard import (
    Ack,
    Alarm,
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
from shardmq.gateway.session.session import Session
from shardmq.protocol.amqp.encoder import content_frames, method_frame
from shardmq.protocol.amqp.frames import FrameReader
from shardmq.protocol.amqp.methods.basic import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import (
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
from shardmq.protocol.native.operations.administration import LimitsPut
from tests.gateway.rawclient import RawClient as NativeClient
from tests.gateway.stage import Stage

from .deliveries import consuming
from .rawclient import RawClient

StartStage = Callable[..., Stage]
FULL = Alarm("disk", True, "disk alarm on shard-0 set")
EMPTY = Alarm("disk", False, "disk alarm on shard-0 cleared")
EXPECTED_OPEN = "expected 'channel.open'"


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


def alarmed(start_stage: StartStage) -> Stage:
    stage = start_stage([("q", 0, {})])
    stage.say(0, FULL)
    stage.until(lambda: bool(stage.state.alarms.reason))
    return stage


def published(stage: Stage) -> int:
    return sum(said.batch.count for said in stage.shards[0].heard if isinstance(said, Publish))


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
