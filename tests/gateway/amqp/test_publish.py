"""What AMQP clients publish: its record batches, and what they hear of it; the shards are the test's."""

from collections.abc import Callable
from typing import Any

import pytest

from shardmq.bus.messages.base import Reset
from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.message.properties import Properties
from shardmq.message.record import unpack_raw
from shardmq.message.record_batch import AMQP, PERSISTENT
from shardmq.protocol.amqp import properties
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicNack, BasicPublish, BasicReturn
from shardmq.protocol.amqp.methods.fields import Method
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from shardmq.topology.changes import QueueRemoved
from shardmq.topology.entities import Binding, Exchange
from tests.protocol.amqp.bytestreams import PERSISTENT_LIST
from tests.protocol.amqp.bytestreams import publish as frames_of

from .rawclient import RawClient, Said

StartStage = Callable[..., Any]
"""See `gateway/conftest.py`."""

TWO = [("a", 0, {}), ("b", 1, {})]
BOUNDED = {"x-max-priority": 9, "x-max-length": 10, "x-overflow": "reject-publish"}
NO_LIST = b"\0\0"
FANOUT = {
    "exchanges": [Exchange("/", "out", "fanout", True)],
    "bindings": [Binding("/", "out", name, "") for name in ("a", "b")],
}


def confirming(stage: Any) -> RawClient:
    client = RawClient(stage.port)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    return client


def to(key: str, exchange: str = "", *, mandatory: bool = False, immediate: bool = False) -> BasicPublish:
    return BasicPublish(0, exchange, key, mandatory, immediate)


def contents(publish: Publish) -> list[tuple[bytes, bytes]]:
    return [(raw, body) for raw, body in unpack_raw(publish.batch.records, publish.batch.count)]


def listed(**values: object) -> bytes:
    return properties.encode(Properties(**values))  # type: ignore[arg-type]


def publish(client: RawClient, method: BasicPublish, *messages: tuple[bytes, bytes]) -> None:
    client.socket.sendall(b"".join([frames_of(body, 1, raw, method) for raw, body in messages]))


def heard(client: RawClient, count: int) -> list[Method]:
    return [client.hear().method for _ in range(count)]


def ack(tag: int, *, multiple: bool = False) -> BasicAck:
    return BasicAck(tag, multiple=multiple)


def nack(tag: int, *, multiple: bool = False) -> BasicNack:
    return BasicNack(tag, multiple=multiple, requeue=False)


def test_neighbours_travel_as_one_batch_byte_for_byte_where_their_properties_mean_nothing_here(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("a", 0, {})])
    with confirming(stage) as client:
        messages = [(listed(delivery_mode=2, message_id=f"m-{n}", headers={"n": n}), b"%d" % n) for n in range(50)]
        messages += [(PERSISTENT_LIST, b"x" * 10)] * 100
        publish(client, to("a"), *messages)
        sent = stage.expect(0, Publish)
        assert contents(sent) == messages
        assert (sent.batch.flags, sent.batch.routing_key, sent.batch.priority, sent.batch.ttl_ms) == (
            AMQP | PERSISTENT,
            "a",
            0,
            None,
        )
        stage.confirm(0, 1)
        assert heard(client, 1) == [ack(150, multiple=True)]


def test_a_batch_ends_where_terms_change(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, BOUNDED)])
    with confirming(stage) as client:
        urgent, brief = listed(priority=5), listed(priority=200, expiration="+0010", delivery_mode=2)
        messages = [
            (NO_LIST, b"1"),
            (listed(app_id="x"), b"2"),
            (PERSISTENT_LIST, b"3"),
            (PERSISTENT_LIST, b"4"),
            (urgent, b"5"),
            (urgent, b"6"),
            (listed(priority=5, app_id="x"), b"7"),
            (brief, b"8"),
            (NO_LIST, b"9"),
        ]
        publish(client, to("a"), *messages)
        sent = [stage.expect(0, Publish) for _ in range(5)]
        assert [contents(one) for one in sent] == [
            messages[:2],
            messages[2:4],
            messages[4:7],
            messages[7:8],
            messages[8:],
        ]
        assert [(one.batch.flags & PERSISTENT, one.batch.priority, one.batch.ttl_ms) for one in sent] == [
            (0, 0, None),
            (1, 0, None),
            (0, 5, None),
            (1, 9, 10),
            (0, 0, None),
        ]
        stage.confirm(0, 5)
        assert heard(client, 1) == [ack(9, multiple=True)]


def test_messages_that_are_routed_by_their_headers_go_together_where_they_go_the_same_way(
    start_stage: StartStage,
) -> None:
    matches = [Binding("/", "by", name, "", {"kind": name}) for name in ("a", "b")]
    stage = start_stage(TWO, exchanges=[Exchange("/", "by", "headers", True)], bindings=matches)
    with confirming(stage) as client:
        a, b, c = (listed(headers={"kind": kind}) for kind in "abc")
        messages = [
            (a, b"1"),
            (a, b"2"),
            (listed(headers={"kind": "a", "n": 3}), b"3"),
            (b, b"4"),
            (c, b"5"),
            (a, b"6"),
        ]
        publish(client, to("", "by"), *messages)
        assert contents(stage.expect(0, Publish)) == [*messages[:3], messages[5]]
        assert contents(stage.expect(1, Publish)) == messages[3:4]
        stage.confirm(1, 1)
        stage.confirm(0, 1)
        assert outcome(client, 6) == ({1, 2, 3, 4, 5, 6}, set())


def test_more_keys_in_headers_count_and_bcc_is_taken_out(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with confirming(stage) as client:
        publish(client, to("a"), (listed(headers={"CC": ["b"], "BCC": ["none"], "n": 1}), b"1"))
        expected = [(listed(headers={"CC": ["b"], "n": 1}), b"1")]
        assert contents(stage.expect(0, Publish)) == contents(stage.expect(1, Publish)) == expected


def test_mandatory_messages_that_nobody_takes_come_back_one_by_one_before_their_confirm(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("a", 0, {})])
    with confirming(stage) as client:
        messages = [(PERSISTENT_LIST, b"1"), (listed(message_id="x"), b"2" * 10_000), (NO_LIST, b"")]
        publish(client, to("nowhere", mandatory=True), *messages)
        returned = BasicReturn(312, "NO_ROUTE", "", "nowhere")
        assert [client.hear() for _ in range(3)] == [Said(1, returned, raw, body) for raw, body in messages]
        assert heard(client, 1) == [ack(3, multiple=True)]
        publish(client, to("nowhere"), *messages)
        assert heard(client, 1) == [ack(6, multiple=True)]


def test_confirms_count_from_confirm_select(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage.port) as client:
        publish(client, to("a"), (NO_LIST, b"1"), (NO_LIST, b"2"))
        stage.expect(0, Publish)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        publish(client, to("a"), (NO_LIST, b"3"))
        stage.expect(0, Publish)
        client.ask(ConfirmSelect(), ConfirmSelectOk)  # changes nothing
        publish(client, to("a"), (NO_LIST, b"4"))
        stage.expect(0, Publish)
        stage.confirm(0, 2)
        assert heard(client, 1) == [ack(1)]
        stage.confirm(0, 3)
        assert heard(client, 1) == [ack(2)]


def test_shards_confirm_each_at_their_own_pace(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with confirming(stage) as client:
        for key, count in (("a", 2), ("b", 3), ("a", 1), ("b", 1)):
            publish(client, to(key), *[(NO_LIST, b"x")] * count)
            stage.expect("ab".index(key), Publish)
        stage.confirm(1, 1)
        assert heard(client, 3) == [ack(3), ack(4), ack(5)]
        stage.confirm(0, 1)
        assert heard(client, 1) == [ack(2, multiple=True)]
        stage.confirm(1, 2)
        assert heard(client, 1) == [ack(7)]
        stage.confirm(0, 2)
        assert heard(client, 1) == [ack(6)]


def test_a_queue_that_has_room_for_some_of_a_batch_takes_those(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, BOUNDED)])
    with confirming(stage) as client:
        publish(client, to("a"), *[(NO_LIST, b"x")] * 10)
        publish(client, to("a"), *[(PERSISTENT_LIST, b"x")] * 5)
        stage.expect(0, Publish)
        stage.expect(0, Publish)
        stage.say(0, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 4), Confirmed(2))
        assert outcome(client, 15) == ({1, 2, 3, 4, *range(11, 16)}, set(range(5, 11)))


def test_what_is_refused_in_the_middle_of_what_is_confirmed_is_told_apart(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, BOUNDED)])
    with confirming(stage) as client:
        for raw in (NO_LIST, PERSISTENT_LIST, NO_LIST):
            publish(client, to("a"), (raw, b"x"), (raw, b"y"))
            stage.expect(0, Publish)
        stage.say(0, PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "full", 1), Confirmed(3))
        assert outcome(client, 6) == ({1, 2, 3, 5, 6}, {4})


def test_messages_for_several_shards_are_stored_where_all_have_taken_them(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    with confirming(stage) as client:
        publish(client, to("", "out"), *[(NO_LIST, b"x")] * 10)
        stage.expect(0, Publish)
        stage.expect(1, Publish)
        stage.say(0, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 7), Confirmed(1))
        stage.say(1, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 4), Confirmed(1))
        assert outcome(client, 10) == ({1, 2, 3, 4}, {5, 6, 7, 8, 9, 10})


def test_messages_for_several_shards_of_which_one_goes_away_are_refused(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    with confirming(stage) as client:
        publish(client, to("", "out"), *[(NO_LIST, b"x")] * 3)
        publish(client, to("a"), (NO_LIST, b"y"))
        for shard in (0, 1, 0):
            stage.expect(shard, Publish)
        stage.confirm(0, 2)
        assert outcome(client, 1, already=3) == ({4}, set())
        stage.say(1, Reset("it starts anew"))
        assert outcome(client, 3) == (set(), {1, 2, 3})


def test_a_queue_that_was_deleted_meanwhile_refuses_nothing(start_stage: StartStage) -> None:
    stage = start_stage(TWO, **FANOUT)
    with confirming(stage) as client:
        publish(client, to("a"), (NO_LIST, b"x"))
        publish(client, to("", "out"), (NO_LIST, b"y"), (NO_LIST, b"z"))
        stage.expect(0, Publish)
        stage.expect(1, Publish)
        stage.tell(QueueRemoved("/", "a"))
        stage.say(0, *[PublishRefusal(number, ReplyCode.NOT_FOUND, "no such queue") for number in (1, 2)], Confirmed(2))
        assert heard(client, 1) == [ack(1)]
        stage.say(1, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 1), Confirmed(1))
        assert outcome(client, 2, already=1) == ({2}, {3})


def outcome(client: RawClient, count: int, already: int = 0) -> tuple[set[int], set[int]]:
    """Which of `count` publishes more are acked and nacked, as clients understand it."""
    waiting = set(range(already + 1, already + count + 1))
    acked: set[int] = set()
    nacked: set[int] = set()
    while waiting:
        (said,) = heard(client, 1)
        assert isinstance(said, BasicAck | BasicNack), said
        about = {tag for tag in waiting if tag <= said.delivery_tag} if said.multiple else {said.delivery_tag}
        assert about <= waiting
        waiting -= about
        (acked if isinstance(said, BasicAck) else nacked).update(about)
    return acked, nacked


NO_EXCHANGE = "no exchange 'none' in vhost '/'"
INTERNAL = "cannot publish to internal exchange 'inner' in vhost '/'"


@pytest.mark.parametrize(
    ("method", "raw", "code", "text"),
    [
        (to("a", "none"), NO_LIST, ReplyCode.NOT_FOUND, NO_EXCHANGE),
        (to("a", "inner"), NO_LIST, ReplyCode.ACCESS_REFUSED, INTERNAL),
        (to("a"), listed(expiration="soon"), ReplyCode.PRECONDITION_FAILED, "invalid expiration 'soon': no_integer"),
        (to("a"), listed(expiration=""), ReplyCode.PRECONDITION_FAILED, "invalid expiration '': no_integer"),
        (
            to("a"),
            listed(expiration="10s"),
            ReplyCode.PRECONDITION_FAILED,
            "invalid expiration '10s': {leftover_string,\"s\"}",
        ),
        (
            to("a"),
            listed(expiration="-1"),
            ReplyCode.PRECONDITION_FAILED,
            "invalid expiration '-1': {value_negative,-1}",
        ),
        (
            to("a"),
            listed(expiration="315360000001"),
            ReplyCode.PRECONDITION_FAILED,
            "invalid expiration '315360000001': {value_too_big,315360000001}",
        ),
        (
            to("a"),
            listed(user_id="other"),
            ReplyCode.PRECONDITION_FAILED,
            "user_id property set to 'other' but authenticated user was 'guest'",
        ),
    ],
)
def test_what_cannot_be_published_ends_the_channel_and_what_came_before_is_sent(
    start_stage: StartStage, method: BasicPublish, raw: bytes, code: ReplyCode, text: str
) -> None:
    stage = start_stage([("a", 0, {})], exchanges=[Exchange("/", "inner", "direct", True, internal=True)])
    with confirming(stage) as client:
        if not method.exchange:
            publish(client, method, (NO_LIST, b"1"), (listed(app_id="x"), b"2"), (raw, b"3"), (NO_LIST, b"4"))
        else:
            publish(client, to("a"), (NO_LIST, b"1"), (listed(app_id="x"), b"2"))
            publish(client, method, (raw, b"3"), (NO_LIST, b"4"))
        client.expect_channel_close(code, text, BasicPublish)
        assert [body for _, body in contents(stage.expect(0, Publish))] == [b"1", b"2"]
        stage.confirm(0, 1)
        client.hang_up()
        assert not stage.shards[0].heard


def test_immediate_is_not_implemented(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with confirming(stage) as client:
        publish(client, to("a", immediate=True), (NO_LIST, b"1"))
        client.expect_close(ReplyCode.NOT_IMPLEMENTED, "immediate=true", BasicPublish)


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x80\0\5abc", b"\x20\0\0\0\0\5\1aI\0\0", b"\0\0x"])
def test_properties_that_are_none_end_the_connection(start_stage: StartStage, raw: bytes) -> None:
    stage = start_stage([("a", 0, {})])
    with confirming(stage) as client:
        publish(client, to("a"), (NO_LIST, b"1"), (raw, b"2"))
        client.expect_close(ReplyCode.SYNTAX_ERROR)
        assert [body for _, body in contents(stage.expect(0, Publish))] == [b"1"]


def test_a_message_that_is_too_large_ends_its_channel_alone(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with confirming(stage) as client:
        publish(client, to("a"), (NO_LIST, b"1"))
        stage.expect(0, Publish)
        stage.confirm(0, 1)
        assert heard(client, 1) == [ack(1)]
        client.publish(to("a"), b"x" * ((16 << 20) + 1))
        text = "message size 16777217 is larger than configured max size 16777216"
        client.expect_channel_close(ReplyCode.PRECONDITION_FAILED, text, BasicPublish)
        client.hang_up()
