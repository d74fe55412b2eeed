"""What a program hears of its connection: hooks, metrics, what comes back."""

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from operator import call

import pytest

import shardmq
from shardmq import errors
from shardmq.client.api.hooks import EVENTS_MAX, Hooks
from shardmq.client.sync.workers import SerialExecutor, WorkerPool
from shardmq.cmd.run.broker import Broker
from shardmq.message import record as records
from shardmq.protocol.native.operations.basic import BasicAck, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.connection import ConnectionBlocked, ConnectionUnblocked, Refused
from shardmq.protocol.native.operations.topology import QueueDeclare
from tests.client.peers import Conversation, Script

Peer = Callable[[Script], str]


def test_returns_reach_the_hook_and_not_the_flush(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        returned: list[shardmq.ReturnedMessage] = []
        both = threading.Semaphore(0)

        @connection.on_return
        def note(message: shardmq.ReturnedMessage) -> None:
            returned.append(message)
            both.release()
            raise ZeroDivisionError("a hook's fault is its own")

        channel = connection.channel()
        with channel.publisher() as publisher:
            publisher.publish("amq.topic", "nobody", b"1", shardmq.Properties(type="t"), mandatory=True)
            publisher.publish_many("amq.topic", "nobody", [b"2"], mandatory=True)
        for _ in range(2):
            assert both.acquire(timeout=10)
        assert [(message.body, message.exchange, message.routing_key, message.code) for message in returned] == [
            (b"1", "amq.topic", "nobody", 312),
            (b"2", "amq.topic", "nobody", 312),
        ]
        assert returned[0].properties.type == "t"
        with pytest.raises(errors.Unroutable) as unroutable:
            channel.basic_publish("", "no such queue", b"3", mandatory=True)
        assert unroutable.value.message.body == b"3"


def test_returns_that_a_slow_hook_has_no_room_for_raise_in_flush(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, body, count = 4 << 20, bytes(1 << 20), 12
    monkeypatch.setattr("shardmq.client.api.hooks.RETURNS_BYTES_MAX", room)
    with shardmq.connect(broker.url) as connection:
        may_go_on, told = threading.Event(), [0]

        @connection.on_return
        def note(message: shardmq.ReturnedMessage) -> None:
            assert may_go_on.wait(60)
            told[0] += len(message.body) == len(body)

        channel = connection.channel()
        publisher = channel.publisher(window=16)
        raised = 0
        for _ in range(count):
            publisher.publish("amq.topic", "nobody", body, mandatory=True)
            try:
                publisher.flush()
            except errors.Unroutable as unroutable:
                assert unroutable.message.body == body
                raised += 1
        assert connection._hooks._returned_bytes < room + 2 * len(body)
        assert raised >= count // 2
        may_go_on.set()
        deadline = time.monotonic() + 30
        while told[0] + raised < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert told[0] + raised == count  # each of them was told, once
        publisher.publish("amq.topic", "nobody", body, mandatory=True)
        publisher.close()


def test_events_wait_for_a_hook_that_hangs_up_to_a_number_and_are_logged_from_there_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiting: list[Callable[[], None]] = []
    hooks = Hooks(waiting.append, call)
    told: list[str] = []
    hooks.on_blocked.append(told.append)
    for number in range(EVENTS_MAX + 2):
        hooks.blocked(str(number))
    assert len(waiting) == EVENTS_MAX
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 2
    for job in waiting:
        job()
    assert told == [str(number) for number in range(EVENTS_MAX)]
    hooks.blocked("again")
    assert len(waiting) == EVENTS_MAX + 1


def test_every_confirm_is_told_of_though_many_come_while_others_are_told() -> None:
    workers = WorkerPool(1, "hooks")
    hooks = Hooks(SerialExecutor(workers).do, call)
    told = [0]
    everything = threading.Event()

    def count(_channel: int, messages: int) -> None:
        told[0] += messages
        if told[0] == 100_000:
            everything.set()

    hooks.on_confirm.append(count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100_000):
            hooks.confirmed(1, 1)
    finally:
        sys.setswitchinterval(interval)
    assert everything.wait(10)
    workers.stop()


def test_flush_without_a_hook_says_how_many_came_back_and_carries_the_first(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        publisher = connection.channel().publisher()
        publisher.publish_many("", "no such queue", [b"1", b"2"], mandatory=True)
        with pytest.raises(errors.Unroutable, match="2 messages came back") as unroutable:
            publisher.flush()
        assert unroutable.value.message.body == b"1"
        assert (unroutable.value.refused, unroutable.value.came_back) == (0, 2)
        publisher.publish("no such exchange", "", b"3")
        publisher.publish("", "no such queue", b"4", mandatory=True)
        with pytest.raises(errors.NotFound, match="1 message was refused, 1 message came back") as refused:
            publisher.flush()
        assert (refused.value.refused, refused.value.came_back) == (1, 1)
        publisher.flush()


def test_confirms_are_told_in_numbers_and_metrics_count_everything(broker: Broker) -> None:
    counts: Counter[str] = Counter()
    confirmed: Counter[int] = Counter()
    connection = shardmq.connect(broker.url, metrics=lambda name, count: counts.update({name: count}))
    told = threading.Event()

    @connection.on_confirm
    def note(channel: int, messages: int) -> None:
        confirmed[channel] += messages
        if confirmed[channel] == 1003:
            told.set()

    channel = connection.channel()
    queue = channel.queue_declare(exclusive=True).queue
    with channel.publisher() as publisher:
        publisher.publish_many("", queue, [b"x"] * 1000)
        publisher.publish("", queue, b"y")
        publisher.publish("", queue, b"z")
    channel.basic_publish("", queue, b"last")
    assert told.wait(10)
    count = 0
    for batch in channel.consume_batches(queue, inactivity_timeout=2.0):
        count += len(batch)
        if count < 1000:
            batch.ack()
        else:
            batch.nack(requeue=False)
    assert count == 1003
    connection.close()
    assert counts["published"] == counts["confirmed"] == counts["consumed"] == 1003
    assert counts["acked"] + counts["nacked"] == 1003
    assert counts["nacked"] > 0
    assert counts["redelivered"] == counts["refused"] == counts["returned"] == 0


def test_metrics_may_be_an_object_with_a_method_for_each_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="published"):
        shardmq.connect("shardmq://127.0.0.1:1/", metrics=object())  # type: ignore[arg-type]


def test_a_blocked_connection_holds_publishes_and_nothing_else(peer: Peer) -> None:
    said = []

    def script(talk: Conversation) -> None:
        talk.open()
        talk.send(ConnectionBlocked("the disk is nearly full"))
        declaring = talk.next(QueueDeclare)
        talk.answer(declaring, {"queue": "q", "messages": 0, "consumers": 0})
        said.append(talk.next(QueueDeclare))
        talk.send(ConnectionUnblocked())
        talk.answer(said[0], {"queue": "q", "messages": 0, "consumers": 0})
        for _ in range(2):
            said.append(talk.next(BasicPublish))
            talk.confirm(said[-1])
        talk.read_to_end()

    with shardmq.connect(peer(script), timeout=0.5) as connection:
        blocked, unblocked = threading.Event(), threading.Event()
        reasons: list[str] = []
        connection.on_unblocked(unblocked.set)
        connection.on_blocked(lambda reason: (reasons.append(reason), blocked.set()))
        channel = connection.channel()
        channel.queue_declare("q")
        assert blocked.wait(10)
        assert connection.blocked == reasons[0] == "the disk is nearly full"
        with pytest.raises(errors.Timeout, match=r"disk is nearly full.*was not sent"):
            channel.basic_publish("", "q", b"given up")
        publisher = channel.publisher(window=10)
        publisher.publish("", "q", b"1")
        publisher.publish("", "q", b"2", shardmq.Properties(delivery_mode=1))
        with pytest.raises(errors.Timeout, match="disk is nearly full"):
            publisher.flush()
        channel.queue_declare("q")
        assert unblocked.wait(10)
        publisher.flush(10)
    batches = [records.unpack(batch.records, batch.count)[0].body for batch in said[1:]]
    assert batches == [b"1", b"2"]


def test_who_was_told_that_publishes_are_blocked_is_told_when_the_connection_is_lost(peer: Peer) -> None:
    second_url = peer(lambda talk: (talk.open(channels=0), talk.read_to_end()))
    may_go = threading.Event()

    def first(talk: Conversation) -> None:
        talk.open(channels=0)
        talk.send(ConnectionBlocked("memory"))
        assert may_go.wait(60)

    with shardmq.connect([peer(first), second_url]) as connection:
        blocked, unblocked, back = threading.Event(), threading.Event(), threading.Event()
        connection.on_blocked(lambda _: blocked.set())
        connection.on_unblocked(unblocked.set)
        connection.on_recovery(lambda _: back.set())
        assert blocked.wait(60)
        assert not unblocked.is_set()
        may_go.set()
        assert unblocked.wait(60)
        assert back.wait(60)
        assert connection.blocked is None


def test_records_of_the_log_may_be_published_over_the_connection_that_they_are_about(peer: Peer) -> None:
    declared = {"queue": "q", "messages": 0, "consumers": 0}
    said: list[BasicPublish] = []

    def second(talk: Conversation) -> None:
        talk.open()
        declaring = talk.next(QueueDeclare)
        talk.send(Refused(declaring.request, 1, 530, "the limit of queues is 0"))
        said.append(talk.next(BasicPublish))
        talk.confirm(said[0])
        talk.read_to_end()

    second_url = peer(second)

    def first(talk: Conversation) -> None:
        talk.open()
        talk.answer(talk.next(QueueDeclare), declared)

    published = threading.Event()

    class Publishing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            channel.basic_publish("", "log", record.getMessage().encode())
            published.set()

    logger, handler = logging.getLogger("shardmq.client"), Publishing(logging.WARNING)
    connection = shardmq.connect([peer(first), second_url])
    channel = connection.channel()
    logger.addHandler(handler)
    try:
        channel.queue_declare("q")
        assert published.wait(60)
    finally:
        logger.removeHandler(handler)
    connection.close()
    assert b"could not restore queue 'q'" in said[0].records


def test_close_returns_at_once_while_publishes_are_blocked(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        talk.send(ConnectionBlocked("memory"))
        talk.answer(talk.next(QueueDeclare), {"queue": "q", "messages": 0, "consumers": 0})
        talk.read_to_end()

    connection = shardmq.connect(peer(script))
    channel = connection.channel()
    channel.queue_declare("q")
    publisher = channel.publisher()
    publisher.publish("", "q", b"never sent")
    connection.close()
    with pytest.raises(errors.ConnectionLost):
        publisher.flush()


def test_a_partial_refusal_refuses_the_rest(peer: Peer) -> None:
    def script(talk: Conversation) -> None:
        talk.open()
        publish = talk.next(BasicPublish)
        talk.send(BasicRefused(1, [(publish.request, publish.request)], 506, "queue 'q' is full", 3))
        talk.read_to_end()

    with shardmq.connect(peer(script)) as connection:
        publisher = connection.channel().publisher()
        publisher.publish_many("", "q", [b"x"] * 5)
        with pytest.raises(errors.PublishRefused, match="2 messages were refused") as refused:
            publisher.flush()
        assert refused.value.refused == 2


def test_a_producer_with_a_name_numbers_its_messages_itself(peer: Peer) -> None:
    said: list[BasicPublish] = []

    def script(talk: Conversation) -> None:
        talk.open()
        while sum(publish.count for publish in said) < 9:
            said.append(talk.next(BasicPublish))
            talk.confirm(said[-1])
        talk.read_to_end()

    with shardmq.connect(peer(script)) as connection:
        channel = connection.channel()
        with channel.publisher(producer="loader") as publisher:
            for sequence in (5, 6, 7, 20, 21):
                publisher.publish("", "q", b"%d" % sequence, sequence=sequence)
            publisher.publish_many("", "q", [b"40", b"41", b"42"], sequence=40)
            publisher.publish("", "q", b"7", sequence=7)
            with pytest.raises(errors.InvalidRequest, match="publish with sequence"):
                publisher.publish("", "q", b"")
        with pytest.raises(errors.InvalidRequest, match="producer="):
            channel.publisher().publish("", "q", b"", sequence=1)
    numbered = [
        (publish.sequence + place, int(record.body))
        for publish in said
        for place, record in enumerate(records.unpack(publish.records, publish.count))
    ]
    assert numbered == [(number, number) for number in (5, 6, 7, 20, 21, 40, 41, 42, 7)]
    assert len({publish.producer for publish in said}) == 1


def test_peeked_messages_cannot_be_settled(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        with channel.publisher() as publisher:
            publisher.publish_many("", queue, [b"%d" % number for number in range(20)])
        peeked = channel.queue_peek(queue, offset=3, count=4)
        assert [message.body for message in peeked] == [b"3", b"4", b"5", b"6"]
        with pytest.raises(errors.PreconditionFailed, match="only looked at"):
            peeked[0].ack()
        assert channel.queue_declare(queue, passive=True).messages == 20


def test_an_ack_of_a_recovered_message_is_not_sent(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.basic_publish("", queue, b"x")
        first = channel.basic_get(queue)
        assert first is not None
        channel.basic_recover()
        first.ack()
        again = channel.basic_get(queue)
        assert again is not None
        assert again.redelivered
        again.ack()
        assert channel.queue_delete(queue) == 0
        assert channel.is_open


def test_acking_everything_when_there_is_nothing_is_nothing(peer: Peer) -> None:
    said = []

    def script(talk: Conversation) -> None:
        talk.open()
        said.append(talk.next())
        talk.answer(said[0], {"queue": "q", "messages": 0, "consumers": 0})
        talk.read_to_end()

    with shardmq.connect(peer(script)) as connection:
        channel = connection.channel()
        channel.basic_ack(multiple=True)
        channel.queue_declare("q")
    assert not isinstance(said[0], BasicAck)
