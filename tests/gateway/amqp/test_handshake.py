"""From the protocol header to connection.open-ok, and all that may go wrong on the way. RabbitMQ's codes and texts."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.errors import ReplyCode
from shardmq.gateway.amqp import handshake
from shardmq.gateway.amqp.handshake import CAPABILITIES, LIKE_RABBITMQ, State
from shardmq.limits import HANDSHAKE_SECONDS
from shardmq.protocol.amqp.encoder import content_frames, method_frame
from shardmq.protocol.amqp.errors import AmqpError
from shardmq.protocol.amqp.events import PROTOCOL_HEADER
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicPublish
from shardmq.protocol.amqp.methods.connection import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from shardmq.protocol.amqp.tables import encode_table
from shardmq.protocol.native.operations.administration import LimitsPut, PermissionPut, UserPut, VhostPut
from shardmq.version import VERSION
from tests.gateway.rawclient import RawClient as NativeClient

from .rawclient import RawClient

Say = Callable[[RawClient], object]


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port, is_open=False) as client:
        yield client


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\0\0\x09\0",
        b"AMQP\0\0\x08\0",
        b"AMQP\1\1\0\x09",
        b"AMQP\1\1\x08\0",
        b"AMQP\0\1\0\0",
        b"AMQP\3\1\0\0",
        b"AMQP\2\1\0\0",
        b"AMQPXXXX",
        b"AXXXXXXX",
        b"AMQP\0\0\x09\x01"[:7] + b"\x02",
        b"A" * 300_000,
    ],
)
def test_another_header_is_answered_with_ours_and_an_end_that_resets_nothing(client: RawClient, header: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the server says its word after the first bytes
        client.socket.sendall(header)
    assert client.rest() == PROTOCOL_HEADER


def test_a_header_may_come_byte_by_byte(client: RawClient) -> None:
    for byte in PROTOCOL_HEADER:
        client.socket.sendall(bytes((byte,)))
    assert isinstance(client.hear().method, ConnectionStart)


def test_a_wrong_header_byte_by_byte_is_answered_when_it_is_wrong(client: RawClient) -> None:
    for byte in b"AMQP\0\0":
        client.socket.sendall(bytes((byte,)))
    client.socket.sendall(b"\x08")
    assert client.rest() == PROTOCOL_HEADER


def test_everything_may_be_said_before_anything_is_heard(client: RawClient) -> None:
    start_ok = ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")
    client.socket.sendall(PROTOCOL_HEADER + method_frame(0, start_ok))
    client.expect(ConnectionStart)
    client.expect(ConnectionTune)
    client.send(0, ConnectionTuneOk(2047, 131_072, 0), ConnectionOpen("/"))
    client.expect(ConnectionOpenOk)


def test_the_server_says_what_it_is_and_can(client: RawClient) -> None:
    start = client.greet()
    properties = start.server_properties
    assert (start.version_major, start.version_minor) == (0, 9)
    assert properties["capabilities"] == CAPABILITIES == dict.fromkeys(CAPABILITIES, True)
    assert CAPABILITIES.keys() == {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }
    for name in ("platform", "cluster_name", "information", "copyright"):
        assert properties[name]
    assert (start.mechanisms, start.locales) == (b"PLAIN AMQPLAIN", b"en_US")


def test_clients_that_look_for_rabbitmqs_semantics_find_them_and_people_what_it_is(client: RawClient) -> None:
    properties = client.greet().server_properties
    assert (properties["product"], properties["version"]) == ("RabbitMQ", LIKE_RABBITMQ)
    assert (3, 3) <= tuple(map(int, LIKE_RABBITMQ.split("."))) < (4, 0), "where basic.qos means what it means here"
    assert properties["shardmq_version"] == VERSION
    for name in ("platform", "information"):
        assert f"shardmq {VERSION}" in properties[name]


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", b"\0guest\0guest"),
        ("AMQPLAIN", encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]),
        ("AMQPLAIN", encode_table({"LOGIN": b"guest", "PASSWORD": b"guest", "more": [1]})[4:]),
    ],
)
def test_users_log_in_by_each_mechanism(client: RawClient, mechanism: str, response: bytes) -> None:
    client.greet()
    client.login(response, mechanism)
    assert client.tune() == ConnectionTune(2047, 131_072, 60)
    client.send(0, ConnectionOpen("/"))
    client.expect(ConnectionOpenOk)


@pytest.mark.parametrize(
    "response", [b"\0guest\0wrong", b"\0nobody\0guest", b"\0\0", b"\0guest\0\xff\xfe", b"\0\xff\xfe\0guest"]
)
def test_a_wrong_password_is_refused_in_words_to_clients_that_can_hear_them(client: RawClient, response: bytes) -> None:
    client.greet()
    client.login(response)
    text = "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    client.expect_close(ReplyCode.ACCESS_REFUSED, text)


def bad_login(response: bytes = b"\0guest\0guest", mechanism: str = "PLAIN", **capabilities: bool) -> Say:
    def say(client: RawClient) -> None:
        client.greet()
        client.login(response, mechanism, capabilities)

    return say


def bad_tune(channel_max: int = 2047, frame_max: int = 131_072) -> Say:
    def say(client: RawClient) -> None:
        client.greet()
        client.login()
        client.tune(channel_max, frame_max)

    return say


def out_of_place(data: bytes, behind_login: bool = False) -> Say:
    def say(client: RawClient) -> None:
        client.greet()
        if behind_login:
            client.login()
            client.expect(ConnectionTune)
        client.socket.sendall(data)

    return say


PUBLISH = method_frame(1, BasicPublish(0, "", "q")) + content_frames(1, b"\0\0", bytes(1 << 20), 131_072)
STRANGERS: dict[str, Say] = {
    "wrong-password-and-deaf": bad_login(b"\0guest\0wrong", authentication_failure_close=False),
    "no-capabilities": bad_login(b"\0guest\0wrong"),
    "unknown-mechanism": bad_login(mechanism="CRAM-MD5"),
    "no-certificate": bad_login(b"", "EXTERNAL"),
    "plain-without-first-nul": bad_login(b"guest\0guest"),
    "plain-for-another": bad_login(b"root\0guest\0guest"),
    "plain-with-more": bad_login(b"\0guest\0gue\0st"),
    "plain-with-nothing": bad_login(b""),
    "amqplain-with-nothing": bad_login(b"", "AMQPLAIN"),
    "amqplain-garbage": bad_login(b"\xff\xff", "AMQPLAIN"),
    "amqplain-without-password": bad_login(encode_table({"LOGIN": "guest"})[4:], "AMQPLAIN"),
    "amqplain-number": bad_login(encode_table({"LOGIN": "guest", "PASSWORD": 1})[4:], "AMQPLAIN"),
    "frame-max-0": bad_tune(frame_max=0),
    "frame-max-low": bad_tune(frame_max=4095),
    "frame-max-high": bad_tune(frame_max=131_073),
    "channel-max-0": bad_tune(channel_max=0),
    "channel-max-high": bad_tune(channel_max=2048),
    "tune-ok-early": out_of_place(method_frame(0, ConnectionTuneOk(2047, 131_072, 0))),
    "open-early": out_of_place(method_frame(0, ConnectionOpen("/")), behind_login=True),
    "close-early": out_of_place(method_frame(0, ConnectionClose(200, "", 0, 0))),
    "channel-early": out_of_place(method_frame(1, ChannelOpen())),
    "publish-early": out_of_place(PUBLISH),
    "publish-before-open": out_of_place(PUBLISH, behind_login=True),
    "garbage": out_of_place(b"\x01\0\0\0\0\0\x04\0\0\0\0X"),
    "unknown-method": out_of_place(b"\x01\0\0\0\0\0\x04\xff\xff\xff\xff\xce"),
    "frame-over-4096": out_of_place(b"\x01\0\0\0\0\x10\x01" + bytes(5000)),
    "start-ok-over-4096": lambda client: (client.greet(), client.login(filler="x" * 4000)),
}


def test_strangers_that_make_a_mistake_hear_nothing_and_are_hung_up_on_after_a_while(broker: Broker) -> None:
    """As in RabbitMQ 3.10 and 3.13, where all of these wait for three seconds."""

    def end(say: Say) -> tuple[bytes, float]:
        with RawClient(broker.port, is_open=False) as client:
            began = time.monotonic()
            try:
                say(client)
                return client.rest(), time.monotonic() - began
            except ConnectionError:
                return b"", time.monotonic() - began

    with ThreadPoolExecutor(len(STRANGERS)) as pool:
        ends = dict(zip(STRANGERS, pool.map(end, STRANGERS.values()), strict=True))
    assert {name: said for name, (said, _) in ends.items() if said} == {}
    assert {name: seconds for name, (_, seconds) in ends.items() if seconds < 2} == {}


def test_a_frame_before_tune_may_have_4096_bytes(client: RawClient) -> None:
    client.greet()
    empty = methods.encode(ConnectionStartOk({"capabilities": {}, "filler": ""}, "PLAIN", b"\0guest\0guest", "en_US"))
    client.login(capabilities={}, filler="x" * (4096 - len(empty)))
    assert isinstance(client.hear().method, ConnectionTune)


@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        (2047, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"),
        (2047, 131_073, "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"),
        (2047, 4095, "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)"),
        (0, 131_072, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"),
        (2048, 131_072, "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"),
    ],
)
def test_limits_that_were_not_offered_are_refused(channel_max: int, frame_max: int, text: str) -> None:
    with pytest.raises(AmqpError) as refused:
        handshake.check_tuned(ConnectionTuneOk(channel_max, frame_max, 60))
    assert (refused.value.code, refused.value.text) == (ReplyCode.NOT_ALLOWED, text)


@pytest.mark.parametrize(("channel_max", "frame_max"), [(1, 4096), (2047, 131_072), (7, 8192)])
def test_limits_up_to_those_offered_are_agreed_on(channel_max: int, frame_max: int) -> None:
    handshake.check_tuned(ConnectionTuneOk(channel_max, frame_max, 65_535))


def known(client: RawClient) -> RawClient:
    client.greet()
    client.login()
    client.tune()
    return client


def test_a_virtual_host_that_is_not_there_is_named(client: RawClient) -> None:
    known(client).send(0, ConnectionOpen("moon-base"))
    client.expect_close(ReplyCode.NOT_ALLOWED, "vhost moon-base not found", ConnectionOpen)


def test_who_is_known_is_told_of_mistakes(broker: Broker) -> None:
    for say, code, text in (
        (method_frame(0, ChannelOpen()), ReplyCode.CHANNEL_ERROR, "unexpected method in connection state opening"),
        (
            method_frame(0, ConnectionClose(200, "", 0, 0)),
            ReplyCode.CHANNEL_ERROR,
            "unexpected method in connection state opening",
        ),
        (method_frame(1, ChannelOpen()), ReplyCode.UNEXPECTED_FRAME, None),
        (b"\x09\0\0\0\0\0\0\xce", ReplyCode.FRAME_ERROR, None),
    ):
        with RawClient(broker.port, is_open=False) as client:
            known(client).socket.sendall(say)
            client.expect_close(code, text)


def test_permissions_and_limits_of_virtual_hosts_and_users_hold(broker: Broker) -> None:
    with NativeClient(broker).open() as admin:
        admin.ask(VhostPut, "moon")
        admin.ask(VhostPut, "mars")
        admin.ask(UserPut, "neil", "secret")
        admin.ask(PermissionPut, "neil", "moon", ".*", ".*", ".*")

        def refused(vhost: str) -> str:
            with RawClient(broker.port, is_open=False) as client:
                client.greet()
                client.login(b"\0neil\0secret")
                client.tune()
                client.send(0, ConnectionOpen(vhost))
                return client.expect_close(ReplyCode.NOT_ALLOWED, method=ConnectionOpen)

        assert refused("mars") == "NOT_ALLOWED - access to vhost 'mars' refused for user 'neil'"
        admin.ask(LimitsPut, "vhost", "moon", {"max-connections": 1})
        with RawClient(broker.port, user="neil", password="secret", vhost="moon"):
            assert refused("moon") == (
                "NOT_ALLOWED - access to vhost 'moon' refused for user 'neil': connection limit (1) is reached"
            )
            admin.ask(LimitsPut, "vhost", "moon", {"max-connections": None})
            admin.ask(LimitsPut, "user", "neil", {"max-connections": 1})
            assert refused("moon") == (
                "NOT_ALLOWED - connection refused for user 'neil': user connection limit (1) is reached"
            )


def in_state(state: State) -> Say:
    def say(client: RawClient) -> None:
        if state is State.HEADER:
            client.socket.sendall(PROTOCOL_HEADER[:5])
            return
        client.greet()
        if state is State.STARTING:
            return
        client.login()
        if state is State.OPENING:
            client.tune()
        else:
            client.expect(ConnectionTune)

    return say


def a_byte_a_second(client: RawClient) -> None:
    client.greet()
    start_ok = method_frame(0, ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
    client.socket.settimeout(1)
    for byte in start_ok:
        client.socket.sendall(bytes((byte,)))
        with contextlib.suppress(TimeoutError):
            assert client.socket.recv(1) == b""
            return


def test_a_handshake_that_takes_too_long_is_given_up_without_a_word_wherever_it_stands(broker: Broker) -> None:
    dawdlers: list[Say] = [in_state(state) for state in State if state not in (State.SECURING, State.ADMITTING)]
    dawdlers += [lambda _: None, a_byte_a_second]

    def seconds(say: Say) -> float:
        began = time.monotonic()
        with RawClient(broker.port, is_open=False) as client:
            with contextlib.suppress(ConnectionError):
                say(client)
                client.socket.settimeout(60)
                assert client.rest() == b""
            return time.monotonic() - began

    with ThreadPoolExecutor(len(dawdlers)) as pool:
        lasted = list(pool.map(seconds, dawdlers))
    assert all(HANDSHAKE_SECONDS - 1 < each < HANDSHAKE_SECONDS + 20 for each in lasted), lasted


def test_doors_that_nobody_says_anything_at_are_closed(broker: Broker) -> None:
    silent = [socket.create_connection(("127.0.0.1", broker.port), timeout=60) for _ in range(50)]
    with RawClient(broker.port) as bystander:
        for each in silent:
            with each, contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
        bystander.ask(ChannelOpen(), ChannelOpenOk, 2)


def test_hanging_up_in_the_middle_is_no_trouble(broker: Broker) -> None:
    said = PROTOCOL_HEADER + method_frame(0, ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
    for cut in range(1, len(said), 3):
        with RawClient(broker.port, is_open=False) as client:
            client.socket.sendall(said[:cut])
            client.reset()
    with RawClient(broker.port) as bystander:
        bystander.hang_up()
