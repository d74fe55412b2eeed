"""Alarms, as pika's users see them: blocked, unblocked, closing meanwhile."""

import threading
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.exceptions import ConnectionBlockedTimeout

from shardmq.bus.messages.shard import Alarm, Publish
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import unpack
from shardmq.protocol.translation import to_native
from tests.gateway.stage import Stage

from .conftest import amqp_url

FULL = Alarm("disk", True, "disk alarm on shard-0 set")
EMPTY = Alarm("disk", False, "disk alarm on shard-0 cleared")


@pytest.fixture
def full_disk(start_broker: Callable[..., Broker]) -> Broker:
    return start_broker(shards=1, options=["--disk-free-limit", "1000TB"])


def test_who_publishes_hears_that_it_is_blocked_and_gives_up_when_it_likes(full_disk: Broker) -> None:
    parameters = pika.URLParameters(amqp_url(full_disk))
    parameters.blocked_connection_timeout = 1
    connection = pika.BlockingConnection(parameters)
    reasons: list[str] = []
    connection.add_on_connection_blocked_callback(lambda _, frame: reasons.append(frame.method.reason))
    channel = connection.channel()
    channel.queue_declare("blocked", durable=True)
    channel.basic_publish("", "blocked", b"x")
    while not reasons:
        connection.process_data_events(time_limit=0.1)
    with pytest.raises(ConnectionBlockedTimeout):
        connection.process_data_events(time_limit=60)
    assert len(reasons) == 1
    assert reasons[0].startswith("low on disk: disk alarm on shard-0")


def test_who_is_blocked_can_close_what_it_has(full_disk: Broker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url(full_disk)))
    channel = connection.channel()
    channel.queue_declare("blocked", durable=True)
    channel.basic_publish("", "blocked", b"x")
    channel.close()
    connection.channel().basic_publish("", "blocked", b"x")
    connection.close()
    assert connection.is_closed


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("g"), [("q", 0, {})])
    yield stage
    stage.close()


def test_publishes_go_on_in_order_when_the_alarm_is_off(stage: Stage) -> None:
    stage.say(0, FULL)
    stage.until(lambda: bool(stage.state.alarms.reason))
    heard: list[str] = []

    def publish() -> None:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", stage.port))
        connection.add_on_connection_blocked_callback(lambda _, __: heard.append("blocked"))
        connection.add_on_connection_unblocked_callback(lambda _, __: heard.append("unblocked"))
        channel = connection.channel()
        for body in (b"0", b"1", b"2"):
            channel.basic_publish("", "q", body)
        while "unblocked" not in heard:
            connection.process_data_events(time_limit=0.1)
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"3")
        heard.append("confirmed")
        connection.close()

    thread = threading.Thread(target=publish)
    thread.start()
    stage.until(lambda: heard == ["blocked"])
    stage.say(0, EMPTY)
    answered = 0

    def is_over() -> bool:
        nonlocal answered
        arrived = [said for said in stage.shards[0].heard if isinstance(said, Publish)]
        if len(arrived) > answered:
            answered = len(arrived)
            stage.confirm(0, answered)
        return not thread.is_alive()

    stage.until(is_over)
    assert heard == ["blocked", "unblocked", "confirmed"]
    batches = [said.batch for said in stage.shards[0].heard if isinstance(said, Publish)]
    assert [record.body for batch in batches for record in unpack(to_native(batch).records, batch.count)] == [
        b"0",
        b"1",
        b"2",
        b"3",
    ]
