"""What a gateway does with clients that misbehave: a typed error, and nobody else notices."""

import socket
import struct
from collections.abc import Iterator

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.limits import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX
from shardmq.message.properties import Properties
from shardmq.message.record import pack, pack_many
from shardmq.protocol.native.frames import frame
from shardmq.protocol.native.operations.basic import BasicAck, BasicConfirm, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.codec import TYPES, encode
from shardmq.protocol.native.operations.connection import (
    ChannelClose,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    Heartbeat,
    Ok,
    Refused,
)
from shardmq.protocol.native.operations.topology import ExchangeDeclare, QueueBind, QueueDeclare, TopologyList
from tests.gateway.rawclient import RawClient


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    client = RawClient(broker)
    yield client
    client.socket.close()


@pytest.fixture(autouse=True)
def somebody_else(broker: Broker) -> Iterator[None]:
    """Another client's traffic, before and after."""
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("bystander", durable=True)
        channel.basic_publish("", "bystander", b"before")
        yield
        channel.basic_publish("", "bystander", b"after")
        for expected in (b"before", b"after"):
            message = channel.basic_get("bystander", auto_ack=True)
            assert message is not None
            assert message.body == expected


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, b"\x00" * 8, b"\x8a\x31\x00\x7f\xff\xff\xff\xff"]
)
def test_bytes_of_another_protocol_are_a_frame_error(client: RawClient, garbage: bytes) -> None:
    client.socket.sendall(garbage)
    client.expect_close(ReplyCode.FRAME_ERROR)


def test_a_frame_over_the_limit_is_refused_before_it_is_sent(client: RawClient) -> None:
    client.open()
    client.socket.sendall(struct.pack(">II", TYPES[BasicPublish], FRAME_BYTES_MAX + 1))
    assert str(FRAME_BYTES_MAX) in client.expect_close(ReplyCode.FRAME_ERROR)


def test_a_malformed_payload_closes_the_connection_and_names_the_operation(client: RawClient) -> None:
    client.open()
    client.socket.sendall(frame(TYPES[QueueDeclare], b"\x93\x01\x01\xc0"))
    assert "QueueDeclare" in client.expect_close(ReplyCode.SYNTAX_ERROR)


def test_an_unknown_type_closes_the_connection(client: RawClient) -> None:
    client.open()
    client.socket.sendall(frame(4242, b"\x90"))
    assert "4242" in client.expect_close(ReplyCode.COMMAND_INVALID)


def test_what_only_a_server_may_say_closes_the_connection(client: RawClient) -> None:
    client.open()
    client.send(BasicConfirm(1, [(1, 1)]))
    client.expect_close(ReplyCode.COMMAND_INVALID)


def test_anything_before_connection_open_is_out_of_state(client: RawClient) -> None:
    client.send(ChannelOpen(1, 1))
    client.expect_close(ReplyCode.CHANNEL_ERROR)


def test_opening_twice_is_out_of_state(client: RawClient) -> None:
    client.open()
    client.send(ConnectionOpen(3, 1, "guest", "guest", "/", 0))
    client.expect_close(ReplyCode.COMMAND_INVALID)


def test_another_protocol_version_is_refused_with_both_numbers(client: RawClient) -> None:
    client.send(ConnectionOpen(1, 99, "guest", "guest", "/", 0))
    assert "99" in client.expect_close(ReplyCode.NOT_IMPLEMENTED)


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("", "")])
def test_wrong_credentials_are_refused(client: RawClient, user: str, password: str) -> None:
    client.send(ConnectionOpen(1, 1, user, password, "/", 0))
    client.expect_close(ReplyCode.ACCESS_REFUSED)


def test_an_unknown_virtual_host_is_refused(client: RawClient) -> None:
    client.send(ConnectionOpen(1, 1, "guest", "guest", "moon", 0))
    assert "moon" in client.expect_close(ReplyCode.NOT_ALLOWED)


def test_a_request_on_a_channel_that_is_not_open_closes_the_connection(client: RawClient) -> None:
    client.open()
    client.send(TopologyList(3, 7, "queues"))
    client.expect_close(ReplyCode.CHANNEL_ERROR)


def test_opening_a_channel_twice_closes_the_connection(client: RawClient) -> None:
    client.open()
    client.send(ChannelOpen(3, 1))
    client.expect_close(ReplyCode.CHANNEL_ERROR)


def test_an_unknown_delivery_tag_closes_the_channel_alone(client: RawClient) -> None:
    client.open()
    client.send(ChannelOpen(3, 2))
    assert isinstance(client.receive(), Ok)
    client.send(BasicAck(1, [(5, 5)]))
    closed = client.receive()
    assert isinstance(closed, ChannelClose)
    assert (closed.channel, closed.code) == (1, ReplyCode.PRECONDITION_FAILED)
    assert "delivery tag 5" in closed.text
    client.send(BasicAck(1, [(6, 6)]), TopologyList(4, 1, "queues"), TopologyList(5, 2, "queues"))
    assert isinstance(client.receive(), Refused)
    answer = client.receive()
    assert isinstance(answer, Ok)
    assert answer.request == 5
    client.send(ChannelOpen(6, 1))
    assert isinstance(client.receive(), Ok)


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (b"not records", 1),
        (pack_many([b"a", b"b"]), 3),
        (pack_many([b"a", b"b"]) + b"\xc0", 2),
        (b"\x92\xc0\xa1x", 1),
        (b"\x92\x81\xa5shape\xa1x\xc4\x00", 1),
    ],
)
def test_malformed_records_are_refused_and_the_channel_lives_on(client: RawClient, records: bytes, count: int) -> None:
    client.open()
    client.send(
        BasicPublish(3, 1, "", "bystander", 1, count, records),
        BasicPublish(4, 1, "", "nowhere", 1, 1, pack(None, b"x")),
    )
    refused = client.receive()
    assert isinstance(refused, BasicRefused)
    assert (refused.requests, refused.code) == ([(3, 3)], ReplyCode.SYNTAX_ERROR)
    assert client.receive() == BasicConfirm(1, [(4, 4)])


@pytest.mark.parametrize("properties", [None, Properties(type="t")])
def test_a_message_over_the_limit_is_refused_and_the_channel_lives_on(
    client: RawClient, properties: Properties | None
) -> None:
    client.open()
    size = MESSAGE_BYTES_MAX + 1
    client.send(
        BasicPublish(3, 1, "", "nowhere", 1, 1, pack(properties, bytes(size))),
        BasicPublish(4, 1, "", "nowhere", 1, 1, pack(properties, bytes(size - 1))),
    )
    refused = client.receive()
    assert isinstance(refused, BasicRefused)
    assert (refused.requests, refused.code) == ([(3, 3)], ReplyCode.CONTENT_TOO_LARGE)
    assert f"message size {size} is larger than configured max size {size - 1}" in refused.text
    assert client.receive() == BasicConfirm(1, [(4, 4)])


@pytest.mark.parametrize("depth", [50, 350, 600, 950, 5000])
def test_headers_that_nest_too_deep_are_refused_and_others_can_be_read(
    broker: Broker, client: RawClient, depth: int
) -> None:
    client.open()
    nested = b"\x92\x81\xa7headers\x81\xa1a" + b"\x91" * depth + b"\xc0\xc4\x00"
    client.send(QueueDeclare(3, 1, "nested"), BasicPublish(4, 1, "", "nested", 0, 1, nested))
    assert isinstance(client.receive(), Ok)
    answer = client.receive()
    assert isinstance(answer, BasicConfirm | BasicRefused)
    assert isinstance(answer, BasicConfirm) or depth > 300
    with shardmq.connect(broker.url) as connection:
        message = connection.channel().basic_get("nested", auto_ack=True)
        assert (message is not None) is isinstance(answer, BasicConfirm)


def nested(depth: int) -> dict[str, object]:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return {"x": value}


@pytest.mark.parametrize("arguments", [nested(17), nested(300), {"x": {1: "a", "b": 2}}])
def test_arguments_that_not_every_process_could_take_are_refused(
    client: RawClient, arguments: dict[str, object]
) -> None:
    client.open()
    client.send(QueueDeclare(3, 1, "bound"), QueueBind(4, 1, "bound", "amq.direct", "k", arguments))
    assert isinstance(client.receive(), Ok)
    refused = client.receive()
    assert isinstance(refused, Refused)
    assert refused.code == ReplyCode.SYNTAX_ERROR
    client.send(QueueBind(5, 1, "bound", "amq.direct", "k", nested(10)))
    assert isinstance(client.receive(), Ok)


def test_publishing_to_no_exchange_is_refused_and_the_channel_lives_on(client: RawClient) -> None:
    client.open()
    client.send(BasicPublish(3, 1, "nowhere", "k", 1, 1, pack(None, b"x")), TopologyList(4, 1, "queues"))
    answers = [client.receive(), client.receive()]
    assert any(isinstance(answer, BasicRefused) and answer.code == ReplyCode.NOT_FOUND for answer in answers)
    assert any(isinstance(answer, Ok) for answer in answers)


def test_a_refused_declaration_names_the_difference(client: RawClient) -> None:
    client.open()
    client.send(ExchangeDeclare(3, 1, "amq.topic", "fanout", True))
    refused = client.receive()
    assert isinstance(refused, Refused)
    assert refused.code == ReplyCode.PRECONDITION_FAILED
    assert "type" in refused.text


def test_requests_sent_without_waiting_are_carried_out_in_order(client: RawClient) -> None:
    client.open()
    client.send(
        ExchangeDeclare(3, 1, "ordered", "direct"),
        QueueDeclare(4, 1, "ordered"),
        BasicPublish(5, 1, "", "ordered", 0, 1, pack(None, b"x")),
        QueueDeclare(6, 1, "ordered"),
    )
    answers = [client.receive() for _ in range(4)]
    assert [answer.request for answer in answers if isinstance(answer, Ok)] == [3, 4, 6]
    last = answers[-1] if isinstance(answers[-1], Ok) else answers[-2]
    assert isinstance(last, Ok)
    assert last.result["messages"] == 1


def test_a_frame_cut_off_by_the_clients_death_stores_nothing(broker: Broker, client: RawClient) -> None:
    client.open()
    whole = encode(BasicPublish(3, 1, "", "bystander", 1, 1, pack(None, b"half")))
    client.socket.sendall(whole[:-3])
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    with shardmq.connect(broker.url) as connection:
        assert connection.channel().queue_declare("bystander", durable=True).messages == 1


def test_a_client_that_never_opens_is_hung_up_on(client: RawClient) -> None:
    client.socket.sendall(b"\x00\x00")
    client.expect_close(ReplyCode.CONNECTION_FORCED)


def test_a_gateway_shows_once_that_it_lives_before_it_is_told_a_password(client: RawClient) -> None:
    client.send(Heartbeat())
    assert isinstance(client.receive(), Heartbeat)
    client.send(Heartbeat(), Heartbeat())
    client.open()  # the next that comes is the answer to connection.open


def test_a_client_without_heartbeats_is_hung_up_on(client: RawClient) -> None:
    client.send(ConnectionOpen(1, 1, "guest", "guest", "/", 1))
    assert isinstance(client.receive(), Ok)
    beats = 0
    while isinstance(said := client.receive(), Heartbeat):
        beats += 1
    assert isinstance(said, ConnectionClose)
    assert said.code == ReplyCode.CONNECTION_FORCED
    assert beats, "it is told that the gateway lives; on a busy machine a gateway that was late says so once"


def test_every_client_is_told_the_broker_s_id(broker: Broker) -> None:
    told = set()
    for _ in range(2):
        with shardmq.connect(broker.url) as connection:
            told.add(connection.server_properties["broker"])
    with shardmq.connect(broker.url) as connection:
        assert told == {row["broker"] for row in connection.status()["processes"] if row["role"] == "coordinator"}
    assert "" not in told
