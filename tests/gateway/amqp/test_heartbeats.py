"""Heartbeats of AMQP connections: ours, the client's, and whose silence is no death."""

import contextlib
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shardmq.bus.messages.shard import Alarm, Publish
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.encoder import BEAT, method_frame
from shardmq.protocol.amqp.methods.basic import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    BasicQos,
    BasicQosOk,
)
from shardmq.protocol.amqp.methods.connection import ConnectionBlocked, ConnectionUnblocked
from shardmq.protocol.amqp.methods.topology import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from tests.conftest import StartBroker
from tests.gateway.stage import Stage

from .rawclient import HungUp, RawClient

StartStage = Callable[..., Stage]
FULL = Alarm("disk", True, "disk alarm on shard-0 set")
EMPTY = Alarm("disk", False, "disk alarm on shard-0 cleared")


def test_heartbeats_come_as_agreed_and_a_silent_client_is_hung_up_on(broker: Broker) -> None:
    with RawClient(broker.port, heartbeat=2) as client:
        began, beats = time.monotonic(), 0
        while True:
            try:
                kind, channel, payload = client.frame()
            except (HungUp, ConnectionResetError):
                break
            assert (kind, channel, payload) == (8, 0, b"")
            beats += 1
        assert beats >= 2
        assert 3.9 < time.monotonic() - began < 60


def test_heartbeats_come_to_a_client_that_publishes_without_confirms(broker: Broker) -> None:
    with RawClient(broker.port, heartbeat=2) as client:
        client.socket.setblocking(False)
        received, deadline = b"", time.monotonic() + 60
        while not received:
            assert time.monotonic() < deadline, "it has no sign of life"
            client.publish(BasicPublish(0, "amq.fanout", "nobody's"), b"one of many")
            time.sleep(0.1)
            with contextlib.suppress(BlockingIOError):
                received = client.socket.recv(100)
        assert received == b"\x08\0\0\0\0\0\0\xce"


def test_without_heartbeats_nobody_minds_silence_and_any_byte_is_life(broker: Broker) -> None:
    with RawClient(broker.port, heartbeat=0) as silent, RawClient(broker.port, heartbeat=2) as slow:
        frame = method_frame(1, BasicQos(0, 1))
        for byte in frame:  # 19 of them
            slow.socket.sendall(bytes((byte,)))
            time.sleep(0.4)
        slow.expect(BasicQosOk)
        silent.ask(BasicQos(0, 1), BasicQosOk)


def test_a_gateway_that_stood_still_listens_before_it_takes_anybody_for_dead(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with RawClient(broker.port, heartbeat=2) as client:
        broker.kill("gateway-0", signal.SIGSTOP)
        for _ in range(12):  # six seconds, where four of silence are too many
            client.socket.sendall(BEAT)
            time.sleep(0.5)
        broker.kill("gateway-0", signal.SIGCONT)
        for _ in range(5):
            client.ask(BasicQos(0, 1), BasicQosOk)
            time.sleep(0.5)


def test_a_tick_that_comes_before_what_was_said_meanwhile_hangs_up_on_nobody(start_stage: StartStage) -> None:
    stage = start_stage([])

    def stand_still() -> None:
        for seconds in (1.6, 3):  # late twice: by the first one clients are not judged either
            time.sleep(seconds)
            stage.loop.tick(time.monotonic())

    with RawClient(stage.port, heartbeat=1) as client:
        stage.loop._loop.call_soon_threadsafe(stand_still)
        for _ in range(10):  # five seconds, where two of silence are too many
            time.sleep(0.5)
            client.socket.sendall(BEAT)
        client.ask(BasicQos(0, 1), BasicQosOk)


def test_a_client_that_we_do_not_read_is_not_taken_for_dead(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port, heartbeat=1) as client:
        stage.say(0, FULL)
        stage.until(lambda: bool(stage.state.alarms.reason))
        with ThreadPoolExecutor(1) as pool:
            saying = pool.submit(client.publish, BasicPublish(0, "", "q"), *[bytes(1 << 20)] * 30)
            client.expect(ConnectionBlocked)
            began = time.monotonic()
            while time.monotonic() - began < 5:  # heartbeats of its own are stuck behind the rest
                assert client.frame()[0] == 8
                stage.work()
            stage.say(0, EMPTY)
            stage.until(lambda: sum(isinstance(said, Publish) for said in stage.shards[0].heard) > 0)
            while not saying.done():
                stage.work()
                time.sleep(0.01)
            saying.result()
        assert client.expect(ConnectionUnblocked) == ConnectionUnblocked()


def test_a_client_that_reads_nothing_lives_by_its_heartbeats_and_gives_back_what_it_has_without(broker: Broker) -> None:
    queues = [f"large-{number}" for number in range(4)]  # more than is kept for a client before it is read no more

    with RawClient(broker.port) as watching:
        for queue in queues:
            watching.ask(QueueDeclare(0, queue), QueueDeclareOk)
            watching.publish(BasicPublish(0, "", queue), *[bytes(15_000_000)] * 2)

        def consumers() -> int:
            """Of the queue that has most."""
            passive = [QueueDeclare(0, queue, passive=True) for queue in queues]
            return max(watching.ask(each, QueueDeclareOk).consumer_count for each in passive)

        with RawClient(broker.port, heartbeat=4) as reading_later, RawClient(broker.port, heartbeat=4) as frozen:
            for client in (reading_later, frozen):
                client.send(1, *[BasicConsume(0, queue) for queue in queues])
            deadline = time.monotonic() + 60
            for count in (2, 1):
                while consumers() != count:
                    assert time.monotonic() < deadline, "it is frozen, and has its consumers still"
                    reading_later.socket.sendall(BEAT)
                    time.sleep(0.1)
            came = [reading_later.hear().method for _ in range(len(queues) * 2)]
            assert {type(method) for method in came} == {BasicConsumeOk, BasicDeliver}
        for queue in queues:
            watching.ask(QueueDelete(0, queue), QueueDeleteOk)
