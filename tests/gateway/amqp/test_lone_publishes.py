"""Messages that come alone, one a pass: they go as each would among others, whatever went before them."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.messages.shard import Publish
from shardmq.errors import ReplyCode
from shardmq.message.properties import Properties
from shardmq.message.record import unpack_raw
from shardmq.message.record_batch import AMQP, PERSISTENT
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicPublish, BasicReturn
from shardmq.protocol.amqp.methods.connection import ChannelClose
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.topology.changes import BindingRemoved, PermissionPut, QueueRemoved
from shardmq.topology.entities import Binding, Exchange, Permission
from tests.gateway.amqp.rawclient import RawClient
from tests.protocol.amqp.bytestreams import publish as frames_of

StartStage = Callable[..., Any]
"""See `gateway/conftest.py`."""

TWO = [("a", 0, {}), ("b", 0, {"x-max-priority": 9})]
BINDINGS = [Binding("/", "both", name, "") for name in ("a", "b")]
FANOUT = {"exchanges": [Exchange("/", "both", "fanout", True)], "bindings": BINDINGS}
NO_LIST = b"\0\0"


def listed(**values: object) -> bytes:
    return properties.encode(Properties(**values))  # type: ignore[arg-type]


PERSISTENT_LIST = listed(delivery_mode=2)


def confirming(stage: Any) -> RawClient:
    client = RawClient(stage.port)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    return client


def send(client: RawClient, key: str, raw: bytes, exchange: str = "", *, mandatory: bool = False) -> None:
    method = BasicPublish(0, exchange, key, mandatory, immediate=False)
    client.socket.sendall(frames_of(b"body", 1, raw, method))


def test_a_shard_is_told_whether_somebody_waits_for_a_confirm(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    with RawClient(stage.port) as client:
        for number in (1, 2):
            send(client, "a", NO_LIST)
            assert stage.expect(0, Publish).unawaited
            stage.confirm(0, number)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        send(client, "a", NO_LIST)
        assert not stage.expect(0, Publish).unawaited
        stage.confirm(0, 3)
        assert client.hear().method == BasicAck(1)


def test_each_message_goes_on_its_own_terms(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    lone = [
        ("", "a", PERSISTENT_LIST, AMQP | PERSISTENT, 0),
        ("", "a", NO_LIST, AMQP, 0),
        ("", "a", listed(delivery_mode=2, message_id="m-1", headers={"n": 1}), AMQP | PERSISTENT, 0),
        ("", "a", listed(delivery_mode=1, correlation_id="c-1"), AMQP, 0),
        ("", "b", listed(priority=5), AMQP, 5),
        ("", "b", NO_LIST, AMQP, 0),
        ("both", "", PERSISTENT_LIST, AMQP | PERSISTENT, 0),
        ("", "a", PERSISTENT_LIST, AMQP | PERSISTENT, 0),
    ]
    with confirming(stage) as client:
        serials = []
        for number, (exchange, key, raw, flags, priority) in enumerate(lone, 1):
            send(client, key, raw, exchange)
            sent = stage.expect(0, Publish)
            batch = sent.batch
            assert (batch.exchange, batch.routing_key, batch.flags, batch.priority) == (exchange, key, flags, priority)
            assert unpack_raw(batch.records, batch.count) == [(raw, b"body")]
            assert len(sent.queues) == (2 if exchange else 1)
            serials.append(batch.serial)
            stage.confirm(0, number)
            assert client.hear().method == BasicAck(number)
        assert serials == sorted(set(serials))
        send(client, "a", listed(expiration="5000"))
        assert stage.expect(0, Publish).batch.ttl_ms == 5000


def test_a_message_follows_a_change_of_the_topology_and_of_permissions(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    with confirming(stage) as client:
        send(client, "", PERSISTENT_LIST, "both")
        assert len(stage.expect(0, Publish).queues) == 2
        stage.confirm(0, 1)
        assert client.hear().method == BasicAck(1)
        stage.tell(BindingRemoved(BINDINGS[0]), QueueRemoved("/", "a"))
        send(client, "", PERSISTENT_LIST, "both")
        assert len(stage.expect(0, Publish).queues) == 1
        send(client, "a", PERSISTENT_LIST, mandatory=True)
        assert isinstance(client.hear().method, BasicReturn)
        stage.tell(PermissionPut(Permission("guest", "/", ".*", "amq.default", ".*")))
        send(client, "", PERSISTENT_LIST, "both")
        said = client.hear().method
        while not isinstance(said, ChannelClose):
            said = client.hear().method
        assert said.reply_code == ReplyCode.ACCESS_REFUSED
