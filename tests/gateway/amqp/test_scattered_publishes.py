"""Publishes that go back and forth between queues: what travels together, in which order, and what is heard of it."""

from collections.abc import Callable
from typing import Any

from shardmq.bus.messages.base import Reset
from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.message.record import unpack_raw
from shardmq.message.record_batch import message_id
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicNack, BasicPublish
from shardmq.protocol.amqp.methods.connection import ChannelClose
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.topology.changes import PermissionPut, QueueRemoved
from shardmq.topology.entities import Binding, Exchange, Permission
from tests.gateway.amqp.rawclient import RawClient
from tests.protocol.amqp.bytestreams import PERSISTENT_LIST
from tests.protocol.amqp.bytestreams import publish as frames_of

StartStage = Callable[..., Any]
"""See `gateway/conftest.py`."""

FOUR = [("a", 0, {}), ("b", 0, {}), ("c", 1, {}), ("d", 1, {})]
OVERLAPPING = {
    "exchanges": [Exchange("/", "both", "fanout", True)],
    "bindings": [Binding("/", "both", name, "") for name in ("a", "b")],
}


def confirming(stage: Any) -> RawClient:
    client = RawClient(stage.port)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    return client


def publish(client: RawClient, targets: str, exchanges: dict[str, str] | None = None) -> None:
    """Publish a message to each target, in one write; its body is its place. `exchanges` stand for some of them."""
    named = exchanges or {}
    frames = [
        frames_of(b"%d" % place, 1, PERSISTENT_LIST, BasicPublish(0, named.get(key, ""), "" if key in named else key))
        for place, key in enumerate(targets)
    ]
    client.socket.sendall(b"".join(frames))


def bodies(publish: Publish) -> str:
    return "".join([body.decode() for _, body in unpack_raw(publish.batch.records, publish.batch.count)])


def outcome(client: RawClient, requests: set[int]) -> tuple[set[int], set[int]]:
    """Which of these publishes are confirmed, and which refused, as clients understand it."""
    waiting = set(requests)
    confirmed: set[int] = set()
    refused: set[int] = set()
    while waiting:
        said = client.hear().method
        assert isinstance(said, BasicAck | BasicNack), said
        about = {tag for tag in waiting if tag <= said.delivery_tag} if said.multiple else {said.delivery_tag}
        assert about <= waiting
        waiting -= about
        (confirmed if isinstance(said, BasicAck) else refused).update(about)
    return confirmed, refused


def test_what_goes_to_one_queue_travels_together(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        publish(client, "abcdabcdab")
        assert [bodies(stage.expect(0, Publish)) for _ in range(2)] == ["048", "159"]
        assert [bodies(stage.expect(1, Publish)) for _ in range(2)] == ["26", "37"]
        stage.confirm(0, 2)
        assert outcome(client, {1, 2, 5, 6, 9, 10})[1] == set()
        stage.confirm(1, 2)
        assert outcome(client, {3, 4, 7, 8})[1] == set()


def test_turns_go_as_before_when_it_is_known_where_they_go(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        for written in (1, 2):
            publish(client, "abcabcabca")
            assert [bodies(stage.expect(0, Publish)) for _ in range(2)] == ["0369", "147"]
            assert bodies(stage.expect(1, Publish)) == "258"
            stage.confirm(0, 2 * written)
            stage.confirm(1, written)
            assert outcome(client, set(range(10 * written - 9, 10 * written + 1)))[1] == set()


def test_a_queue_that_has_two_places_in_a_turn_has_its_messages_in_order(start_stage: StartStage) -> None:
    exchange, binding = Exchange("/", "one", "fanout", True), Binding("/", "one", "a", "")
    stage = start_stage(FOUR, exchanges=[exchange], bindings=[binding])
    with confirming(stage) as client:
        taken = 0
        for _ in range(2):
            publish(client, "aXbaXbaXb", {"X": "one"})
            queues = {1: "", 2: ""}
            while len(queues[1]) + len(queues[2]) < 9:
                heard = stage.expect(0, Publish)
                taken += 1
                queues[heard.queues[0]] += bodies(heard)
            assert queues == {1: "013467", 2: "258"}
        stage.confirm(0, taken)
        assert outcome(client, set(range(1, 19)))[1] == set()


def test_ids_of_messages_are_unique_and_rise_in_each_queue(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        publish(client, "abababcdcd")
        batches = [stage.expect(shard, Publish).batch for shard in (0, 0, 1, 1)]
        ids = [message_id(batch.origin, batch.serial + place) for batch in batches for place in range(batch.count)]
        assert len(set(ids)) == 10
        assert all(batch.timestamp_ms for batch in batches)


def test_every_queue_has_its_messages_in_order_where_routes_overlap(start_stage: StartStage) -> None:
    stage = start_stage(FOUR, **OVERLAPPING)
    with confirming(stage) as client:
        publish(client, "abXaXbba", {"X": "both"})
        names = {1: "a", 2: "b"}
        queues = {"a": "", "b": ""}
        taken = 0
        while len(queues["a"]) + len(queues["b"]) < 10:
            heard = stage.expect(0, Publish)
            taken += 1
            for queue in heard.queues:
                queues[names[queue]] += bodies(heard)
        assert queues == {"a": "02347", "b": "12456"}
        stage.confirm(0, taken)
        assert outcome(client, set(range(1, 9))) == ({1, 2, 3, 4, 5, 6, 7, 8}, set())


def test_a_queue_that_takes_a_part_refuses_the_publishes_behind_it(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        publish(client, "ababababab")
        stage.expect(0, Publish)
        stage.expect(0, Publish)
        stage.say(0, PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "full", 3), Confirmed(2))
        assert outcome(client, set(range(1, 11))) == ({1, 3, 5, 7, 9, 2, 4, 6}, {8, 10})


def test_a_shard_that_is_lost_refuses_what_grows_and_what_is_on_its_way(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        publish(client, "ababcd")
        for shard in (0, 0, 1, 1):
            stage.expect(shard, Publish)
        stage.confirm(1, 2)
        stage.say(0, Reset("it starts anew"))
        assert outcome(client, set(range(1, 7))) == ({5, 6}, {1, 2, 3, 4})


def test_publishes_behind_a_change_of_the_topology_follow_it(start_stage: StartStage) -> None:
    stage = start_stage(FOUR)
    with confirming(stage) as client:
        publish(client, "abab")
        assert [bodies(stage.expect(0, Publish)) for _ in range(2)] == ["02", "13"]
        stage.tell(QueueRemoved("/", "a"))
        publish(client, "abab")
        assert bodies(stage.expect(0, Publish)) == "13"
        stage.confirm(0, 3)
        assert outcome(client, set(range(1, 9))) == ({1, 2, 3, 4, 5, 6, 7, 8}, set())


def test_a_permission_that_is_taken_away_ends_the_channel_in_the_middle(start_stage: StartStage) -> None:
    stage = start_stage(FOUR, **OVERLAPPING)
    with confirming(stage) as client:
        publish(client, "abXabX", {"X": "both"})
        for _ in range(6):
            stage.expect(0, Publish)
        stage.tell(PermissionPut(Permission("guest", "/", ".*", "amq.default", ".*")))
        publish(client, "abXab", {"X": "both"})
        assert [bodies(stage.expect(0, Publish)) for _ in range(2)] == ["0", "1"]
        stage.confirm(0, 8)
        closed = client.hear().method
        while not isinstance(closed, ChannelClose):
            closed = client.hear().method
        assert closed.reply_code == ReplyCode.ACCESS_REFUSED
