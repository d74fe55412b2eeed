"""What a program meets when the broker is lost, silent or not in its right mind: a typed error, in time, everywhere."""

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.client.api.defaults import UNDELIVERED_BYTES_MAX
from shardmq.client.api.url import Address
from shardmq.client.sync.sockets import dial
from shardmq.cmd.run.broker import Broker
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import (
    BasicCancel,
    BasicConfirm,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
)
from shardmq.protocol.native.operations.connection import ChannelClose, ChannelOpen, ConnectionClose, ConnectionOpen, Ok
from shardmq.protocol.native.operations.topology import QueueDeclare
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]


def test_nobody_listening_is_connection_lost() -> None:
    with pytest.raises(errors.ConnectionLost, match="no broker answers"):
        shardmq.connect("shardmq://127.0.0.1:1/", timeout=2)


def test_a_host_that_can_have_no_address_is_one_where_nobody_answers() -> None:
    stop, other_end = socket.socketpair()
    with stop, other_end, pytest.raises(errors.ConnectionLost, match=r"no broker answers at bad\.\.host:1"):
        dial(Address("bad..host", 1, "", "", "/"), None, 10.0, stop)


def test_a_server_that_never_answers_the_opening_is_a_timeout(peer: Peer) -> None:
    url = peer(Conversation.read_to_end)
    with pytest.raises(errors.Timeout, match="opening the connection"):
        shardmq.connect(url, timeout=0.2)


def test_a_refused_opening_is_authentication_failed(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.next(ConnectionOpen)
        talk.send(ConnectionClose(403, "user 'guest' may not come from there"))

    with pytest.raises(errors.AuthenticationFailed, match="may not come from there"):
        shardmq.connect(peer(script), recovery=None)


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opening"])
def test_a_connection_that_the_broker_resets_is_one_that_it_closed(peer: Peer, is_open: bool) -> None:
    def script(talk: Conversation) -> None:
        if is_open:
            talk.open()
        talk.next(QueueDeclare if is_open else ConnectionOpen)
        talk.reset()

    url = peer(script)
    where = re.escape(url.removeprefix("shardmq://").rstrip("/"))
    sentence = f"the broker at {where} closed the connection" + ("" if is_open else " before it was open; if that is")
    with pytest.raises(errors.ConnectionLost, match=f"^{sentence}"), shardmq.connect(url, recovery=None) as connection:
        connection.channel().queue_declare("q")


def test_a_channel_that_is_opened_too_late_is_closed_and_its_number_free_again(peer: Peer) -> None:
    is_late, is_closed, is_over = threading.Event(), threading.Event(), threading.Event()

    def script(talk: Conversation) -> None:
        talk.open(channels=0)
        opening = talk.next(ChannelOpen)
        assert is_late.wait(10)
        talk.answer(opening)
        closing = talk.next(ChannelClose)
        assert closing.channel == opening.channel
        talk.answer(closing)
        is_closed.set()
        again = talk.next(ChannelOpen)
        assert again.channel == opening.channel
        talk.answer(again)
        is_over.set()
        talk.read_to_end()

    with shardmq.connect(peer(script), timeout=1.0, recovery=None) as connection:
        with pytest.raises(errors.Timeout, match="opening channel 1"):
            connection.channel()
        is_late.set()
        assert is_closed.wait(10)
        deadline = time.monotonic() + 10
        while connection._core.state.by_number:
            assert time.monotonic() < deadline
        assert connection.channel().number == 1
        assert is_over.wait(10)


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x10\0\0\0\x01\xc1", b"\0" * 64])
def test_garbage_ends_the_connection_with_a_protocol_error_that_tells_the_server(peer: Peer, garbage: bytes) -> None:
    said: SimpleQueue[ConnectionClose] = SimpleQueue()

    def script(talk: Conversation) -> None:
        talk.open()
        talk.next(QueueDeclare)
        talk.socket.sendall(garbage)
        said.put(talk.next(ConnectionClose))

    connection = shardmq.connect(peer(script), recovery=None)
    channel = connection.channel()
    with pytest.raises(errors.ProtocolError):
        channel.queue_declare("q")
    with pytest.raises(errors.ProtocolError):
        channel.basic_publish("", "q", b"")
    connection.close()
    assert said.get(timeout=10).code in (501, 502, 503)


def test_loss_reaches_every_thread_that_waits_and_everything_used_afterwards(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        consuming = talk.next(BasicConsume)
        talk.send(Ok(consuming.request, 1, {"consumer": "c"}))
        for _ in range(3):
            talk.next()

    connection = shardmq.connect(peer(script), recovery=None)
    channel = connection.channel()
    messages = channel.consume("q")
    publisher = channel.publisher()
    publisher.publish("", "q", b"1")
    with ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(next, messages),
            pool.submit(publisher.flush),
            pool.submit(channel.queue_declare, "q"),
            pool.submit(channel.basic_publish, "", "q", b"2"),
        ]
        for one in waiting:
            with pytest.raises(errors.ConnectionLost):
                one.result(10)
    for use in (
        lambda: channel.queue_declare("q"),
        lambda: channel.basic_publish("", "q", b""),
        lambda: publisher.publish("", "q", b""),
        lambda: publisher.publish_many("", "q", [b""]),
        lambda: channel.consume("q"),
        lambda: channel.basic_ack(1),
        lambda: channel.publisher().publish("", "q", b""),
        connection.channel,
        connection.status,
    ):
        with pytest.raises(errors.ConnectionLost):
            use()
    channel.close()
    connection.close()
    assert not connection.is_open


def test_publishes_that_were_not_confirmed_surface_when_the_publisher_is_left(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        talk.next(BasicPublish)

    connection = shardmq.connect(peer(script), recovery=None)
    with pytest.raises(errors.ConnectionLost), connection.channel().publisher() as publisher:
        publisher.publish("", "q", b"1")


def test_a_server_silent_for_two_heartbeats_is_lost(peer: Peer) -> None:
    over = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open(heartbeat=1)
        over.wait(10)

    connection = shardmq.connect(peer(script), heartbeat=1, recovery=None)
    channel = connection.channel()
    began = time.monotonic()
    with pytest.raises(errors.ConnectionLost, match="nothing heard"):
        channel.queue_declare("q")
    assert 1 < time.monotonic() - began < 5
    over.set()
    connection.close()


def test_a_request_without_an_answer_times_out_and_the_channel_lives_on(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        first = talk.next(QueueDeclare)
        second = talk.next(QueueDeclare)
        for request in (first, second):
            talk.send(Ok(request.request, 1, {"queue": request.queue, "messages": 0, "consumers": 0}))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None, timeout=0.3) as connection:
        channel = connection.channel()
        with pytest.raises(errors.Timeout, match="declaring queue 'one'"):
            channel.queue_declare("one")
        assert channel.queue_declare("two").queue == "two"


def test_close_returns_though_the_server_does_not_hang_up(peer: Peer) -> None:
    over = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open(channels=0)
        over.wait(10)

    connection = shardmq.connect(peer(script), recovery=None, timeout=0.3)
    began = time.monotonic()
    connection.close()
    connection.close()
    assert time.monotonic() - began < 3
    over.set()


def test_a_full_window_waits_for_confirms_and_is_a_timeout_when_none_come(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        seen = 0
        while seen < 10:
            publish = talk.next(BasicPublish)
            seen += publish.count
        talk.send(BasicConfirm(1, [(1, publish.request)]))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None, timeout=0.5) as connection:
        publisher = connection.channel().publisher(window=10)
        for number in range(20):
            publisher.publish("", "q", b"%d" % number)
            assert publisher.unconfirmed <= 10
        with pytest.raises(errors.Timeout, match="window"):
            publisher.publish("", "q", b"one too many")
        with pytest.raises(errors.Timeout, match="flush"):
            publisher.flush(0.1)


def test_publishes_that_wait_for_a_confirm_share_batches_in_order(peer: Peer) -> None:
    batches = []

    def script(talk: Conversation) -> None:
        talk.open()
        while sum(batch.count for batch in batches) < 2000:
            batches.append(talk.next(BasicPublish))
        talk.send(BasicConfirm(1, [(batches[0].request, batches[-1].request)]))
        talk.read_to_end()

    bodies = [b"%d" % number for number in range(2000)]
    with shardmq.connect(peer(script), recovery=None) as connection, connection.channel().publisher() as publisher:
        for body in bodies:
            publisher.publish("", "q", body)
    assert [record.body for batch in batches for record in records.unpack(batch.records, batch.count)] == bodies
    assert len(batches) < 500


def test_leaving_a_consumer_gives_back_what_was_not_handed_out(peer: Peer) -> None:
    told = []

    def script(talk: Conversation) -> None:
        talk.open()
        consuming = talk.next(BasicConsume)
        packed = records.pack_many([b"x"] * 5)
        talk.send(
            Ok(consuming.request, 1, {"consumer": "c"}),
            BasicDeliver(1, "c", 1, False, "", "q", 1, 0, 1, 1, 5, packed),
            BasicDeliver(1, "c", 6, False, "", "q", 1, 0, 1, 6, 5, packed),
        )
        cancel = talk.next(BasicCancel)
        talk.send(BasicDeliver(1, "c", 11, False, "", "q", 1, 0, 1, 11, 5, packed), Ok(cancel.request, 1))
        while sum(last - first + 1 for nack in told for first, last in nack.tags) < 13:
            told.append(talk.next(BasicNack))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None) as connection:
        messages = connection.channel().consume("q")
        assert [next(messages).delivery_tag, next(messages).delivery_tag] == [1, 2]
        messages.close()
    assert sorted(span for nack in told for span in nack.tags) == [(3, 5), (6, 10), (11, 15)]
    assert all(nack.requeue for nack in told)


def test_a_consumer_that_does_not_consume_stops_the_reading(peer: Peer) -> None:
    body = records.pack(None, bytes(1 << 20))
    many = 3 * UNDELIVERED_BYTES_MAX // len(body)
    delivered = [0]
    answered = threading.Event()

    def script(talk: Conversation) -> None:
        talk.open()
        consuming = talk.next(BasicConsume)
        talk.send(Ok(consuming.request, 1, {"consumer": "c"}))
        talk.socket.settimeout(0.5)
        try:
            for number in range(1, many + 1):
                talk.send(BasicDeliver(1, "c", number, False, "", "q", 1, 0, 1, number, 1, body))
                delivered[0] = number
        except TimeoutError:
            talk.socket.settimeout(10)
        answered.set()
        talk.socket.close()

    connection = shardmq.connect(peer(script), recovery=None)
    messages = connection.channel().consume("q", auto_ack=True)
    assert answered.wait(10)
    assert delivered[0] * len(body) < UNDELIVERED_BYTES_MAX + (40 << 20)
    got: list[int] = []
    with pytest.raises(errors.ConnectionFault):
        got.extend(message.delivery_tag for message in messages)
    assert got == list(range(1, len(got) + 1))
    assert len(got) >= delivered[0] - 1
    connection.close()


def test_requests_from_many_threads_have_rising_numbers(peer: Peer) -> None:
    numbers = []

    def script(talk: Conversation) -> None:
        talk.open(channels=0)
        opened = 0
        while opened < 4:
            opening = talk.next(ChannelOpen)
            talk.send(Ok(opening.request, opening.channel))
            opened += 1
        while len(numbers) < 200:
            publish = talk.next(BasicPublish)
            numbers.append(publish.request)
            talk.send(BasicConfirm(publish.channel, [(publish.request, publish.request)]))
        talk.read_to_end()

    with shardmq.connect(peer(script), recovery=None) as connection:
        channels = [connection.channel() for _ in range(4)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: channels[number % 4].basic_publish("", "q", b""), range(200)))
    assert numbers == sorted(set(numbers))


def test_fields_of_wrong_types_are_refused_here_and_cost_no_connection(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        verbs: list[Callable[[Any], object]] = [
            lambda wrong: connection.limits_put("vhost", "/", {"max-queues": wrong}),
            lambda wrong: connection.user_put("u", tags=wrong),
            lambda wrong: connection.permission_put("guest", "/", [wrong], "", ""),
            lambda wrong: channel.queue_declare("q", durable=wrong),
            lambda wrong: channel.queue_declare("q", arguments=wrong),
            lambda wrong: channel.queue_peek("q", offset=wrong),
            lambda wrong: channel.basic_get("q", auto_ack=wrong),
            lambda wrong: channel.basic_qos("tag", wrong),
            lambda wrong: channel.basic_consume("q", wrong),
        ]
        for verb in verbs:
            with pytest.raises(TypeError):
                verb("wrong")
        assert channel.queue_declare(exclusive=True).messages == 0


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_a_timeout_is_over_zero(timeout: float) -> None:
    with pytest.raises(errors.InvalidRequest, match="over 0 seconds"):
        shardmq.connect("shardmq://127.0.0.1:1/", timeout=timeout)
