"""Queues that have more messages than a count of AMQP can tell of: streams may. The shard is the test's."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest

from shardmq.bus.messages.base import Answer
from shardmq.bus.messages.shard import Counts, DropQueue, Get, Got, Purge
from shardmq.message.record import pack
from shardmq.message.record_batch import RecordBatch
from shardmq.protocol.amqp.methods.basic import BasicGetOk
from shardmq.protocol.amqp.methods.fields import MESSAGE_COUNT_MAX, Method
from shardmq.protocol.amqp.methods.topology import (
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]
Kind = TypeVar("Kind", bound=Method)

TOO_MANY: Final = MESSAGE_COUNT_MAX + 1


def answered(
    stage: Stage, client: RawClient, method: Method, request: type[Any], result: Any, kind: type[Kind]
) -> Kind:
    """What the client is answered where the shard answers so."""
    client.send(1, method)
    asked = stage.expect(0, request)
    stage.say(0, Answer(stage.request(asked), result))
    return client.expect(kind)


@pytest.mark.parametrize("passive", [False, True])
def test_a_declaration_tells_of_as_many_as_it_can(start_stage: StartStage, passive: bool) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        declare = QueueDeclare(0, "q", passive=passive, durable=True)
        for ready in (TOO_MANY, MESSAGE_COUNT_MAX, 7):
            declared = answered(stage, client, declare, Counts, (ready, 1), QueueDeclareOk)
            assert declared == QueueDeclareOk("q", min(ready, MESSAGE_COUNT_MAX), 1)


def test_a_purge_and_a_deletion_tell_of_as_many_as_they_can(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        assert answered(stage, client, QueuePurge(0, "q"), Purge, TOO_MANY, QueuePurgeOk) == QueuePurgeOk(
            MESSAGE_COUNT_MAX
        )
        assert answered(stage, client, QueueDelete(0, "q"), DropQueue, TOO_MANY, QueueDeleteOk) == QueueDeleteOk(
            MESSAGE_COUNT_MAX
        )


def test_a_get_tells_of_as_many_as_it_can(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {})])
    with RawClient(stage.port) as client:
        client.send(1, ask.get("q", no_ack=True))
        asked = stage.expect(0, Get)
        batch = RecordBatch("", "q", 0, 0, 1, 1, 1, pack(None, b"x"))
        stage.say(0, Got(stage.request(asked), 0, False, batch, TOO_MANY))
        assert client.expect(BasicGetOk).message_count == MESSAGE_COUNT_MAX
