"""Publishes message by message: parts, returns, confirms and partial refusals; the shards are the test's."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.message.properties import Properties
from shardmq.message.record import pack, pack_many, unpack
from shardmq.message.record_batch import MANDATORY, PERSISTENT
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused, BasicReturn
from shardmq.protocol.native.operations.fields import Operation
from shardmq.topology.changes import QueueRemoved
from shardmq.topology.entities import Binding, Exchange, User
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage
from tests.warm import quick_hash

StartStage = Callable[..., Stage]
TWO = [("a", 0, {}), ("b", 1, {})]
BOUNDED = {"x-max-priority": 9, "x-max-length": 10, "x-overflow": "reject-publish"}


def join(*messages: tuple[bytes, Properties | None]) -> bytes:
    return b"".join(pack(properties, body) for body, properties in messages)


def bodies(publish: Publish) -> list[bytes]:
    return [record.body for record in unpack(publish.batch.records, publish.batch.count)]


def refusals(*answers: Operation | None) -> list[tuple[list[tuple[int, int]], int, int]]:
    return [(said.requests, said.code, said.taken) for said in answers if isinstance(said, BasicRefused)]


def test_a_publish_is_cut_where_priority_or_expiration_change(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, BOUNDED)])
    with RawClient(stage).open() as client:
        records = join(
            (b"1", None),
            (b"2", Properties(content_type="x")),
            (b"3", Properties(priority=5)),
            (b"4", Properties(priority=5, expiration="10")),
            (b"5", Properties(priority=5, expiration="10")),
            (b"6", None),
        )
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 6, records, producer=77, sequence=100))
        parts = [stage.expect(0, Publish) for _ in range(4)]
        assert [(bodies(part), part.batch.priority, part.batch.ttl_ms) for part in parts] == [
            ([b"1", b"2"], 0, None),
            ([b"3"], 5, None),
            ([b"4", b"5"], 5, 10),
            ([b"6"], 0, None),
        ]
        first = parts[0].batch.serial
        assert [(part.producer, part.sequence, part.batch.serial - first) for part in parts] == [
            (77, 100, 0),
            (77, 102, 2),
            (77, 103, 3),
            (77, 105, 5),
        ]
        stage.confirm(0, 3)
        client.send(BasicPublish(4, 1, "", "nowhere", 0, 1, pack(None, b"x")))
        assert client.receive() == BasicConfirm(1, [(4, 4)])
        stage.confirm(0, 4)
        assert client.receive() == BasicConfirm(1, [(3, 3)])


def test_messages_for_queues_with_priorities_are_sorted_by_them_and_keep_their_order_in_each(
    start_stage: StartStage,
) -> None:
    stage = start_stage([("a", 0, {"x-max-priority": 2})])
    with RawClient(stage).open() as client:
        records = join(*[(b"%d" % place, Properties(priority=place % 4) if place % 4 else None) for place in range(8)])
        producer = FRAMED_PRODUCERS + 77
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 8, records, producer=producer, sequence=100))
        parts = [stage.expect(0, Publish) for _ in range(3)]
        assert [(bodies(part), part.batch.priority) for part in parts] == [
            ([b"2", b"3", b"6", b"7"], 2),
            ([b"1", b"5"], 1),
            ([b"0", b"4"], 0),
        ]
        first = parts[0].batch.serial
        assert [(part.sequence, part.batch.serial - first) for part in parts] == [(100, 0), (104, 4), (106, 6)]


def test_of_messages_that_were_sorted_none_is_certain_where_a_part_is_refused(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {"x-max-priority": 2})])
    with RawClient(stage).open() as client:
        records = join(*[(b"%d" % place, Properties(priority=place)) for place in range(3)])
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 3, records))
        for _ in range(3):
            stage.expect(0, Publish)
        stage.shards[0].say(PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "deleted", 0), Confirmed(3))
        assert refusals(client.receive()) == [([(3, 3)], ReplyCode.RESOURCE_ERROR, 0)]


def test_messages_of_a_producer_that_outlives_its_frames_keep_their_numbers(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {"x-max-priority": 2})])
    with RawClient(stage).open() as client:
        records = join(*[(b"%d" % place, Properties(priority=place // 2)) for place in range(6)])
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 6, records, producer=77, sequence=100))
        parts = [stage.expect(0, Publish) for _ in range(3)]
        assert [(bodies(part), part.batch.priority, part.sequence) for part in parts] == [
            ([b"0", b"1"], 0, 100),
            ([b"2", b"3"], 1, 102),
            ([b"4", b"5"], 2, 104),
        ]


def test_a_priority_that_no_queue_has_cuts_nothing(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        records = join(*[(b"%d" % place, Properties(priority=place)) for place in range(8)])
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 8, records))
        part = stage.expect(0, Publish)
        assert (part.batch.count, part.batch.priority, part.batch.records) == (8, 0, records)


def test_publishes_are_joined_only_where_sequence_and_delay_continue(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        two = pack_many([b"x", b"y"])
        client.send(
            BasicPublish(3, 1, "", "a", 0, 2, two, 0, 9, 1),
            BasicPublish(4, 1, "", "a", 0, 2, two, 0, 9, 3),
            BasicPublish(5, 1, "", "a", 0, 2, two, 0, 9, 7),
            BasicPublish(6, 1, "", "a", 0, 2, two, 50, 9, 9),
            BasicPublish(7, 1, "", "a", 0, 2, two, 50, 9, 11),
            BasicPublish(8, 1, "", "a", 0, 2, two, 50, 8, 13),
            BasicPublish(9, 1, "", "a", 0, 2, two),
            BasicPublish(10, 1, "", "a", 0, 2, two),
        )
        stage.until(lambda: sum(each.batch.count for each in stage.shards[0].heard if isinstance(each, Publish)) == 16)
        sent = [each for each in stage.shards[0].heard if isinstance(each, Publish)]
        assert [(each.batch.count, each.producer, each.sequence, each.delay_ms) for each in sent] == [
            (4, 9, 1, 0),
            (2, 9, 7, 0),
            (4, 9, 9, 50),
            (2, 8, 13, 50),
            (4, 0, 0, 0),
        ]


@pytest.mark.parametrize(
    ("taken", "confirmed", "refused"),
    [
        (0, [], [([(3, 6)], 506, 0)]),
        (1, [], [([(3, 3)], 506, 1), ([(4, 6)], 506, 0)]),
        (2, [(3, 3)], [([(4, 6)], 506, 0)]),
        (7, [(3, 5)], [([(6, 6)], 506, 1)]),
    ],
)
def test_a_partial_refusal_is_shared_out_to_the_publishes_of_the_run(
    start_stage: StartStage, taken: int, confirmed: list[tuple[int, int]], refused: list[object]
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        two = pack_many([b"x", b"y"])
        client.send(*[BasicPublish(request, 1, "", "a", 0, 2, two) for request in range(3, 7)])
        assert stage.expect(0, Publish).batch.count == 8
        stage.say(0, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", taken), Confirmed(1))
        answers = [client.receive() for _ in range(len(refused) + bool(confirmed))]
        assert refusals(*answers) == refused
        assert [said.requests for said in answers if isinstance(said, BasicConfirm)] == (
            [confirmed] if confirmed else []
        )


def test_publishes_of_different_length_keep_their_own_share_of_a_refusal(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(*[BasicPublish(count, 1, "", "a", 0, count, pack_many([b"x"] * count)) for count in (3, 4, 5)])
        assert stage.expect(0, Publish).batch.count == 12
        stage.say(0, PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 8), Confirmed(1))
        answers = [client.receive(), client.receive()]
        assert refusals(*answers) == [([(5, 5)], 506, 1)]
        assert BasicConfirm(1, [(3, 4)]) in answers


def test_of_several_queues_the_one_that_took_least_counts(start_stage: StartStage) -> None:
    stage = start_stage(
        [("a", 0, {}), ("b", 1, {}), ("c", 0, {})], bindings=[Binding("/", "amq.fanout", name, "") for name in "abc"]
    )
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "amq.fanout", "", 0, 5, pack_many([b"x"] * 5)))
        assert stage.expect(0, Publish).queues == (1, 3)
        assert stage.expect(1, Publish).queues == (2,)
        stage.say(0, PublishRefusal(1, 506, "four", 4), PublishRefusal(1, 506, "two", 2), Confirmed(1))
        stage.say(1, PublishRefusal(1, 506, "three", 3), Confirmed(1))
        assert client.receive() == BasicRefused(1, [(3, 3)], 506, "two", 2)


def test_what_a_part_takes_counts_from_the_beginning_of_the_publish(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, BOUNDED)])
    with RawClient(stage).open() as client:
        records = join(*[(b"%d" % place, Properties(priority=place // 2)) for place in range(6)])
        client.send(BasicPublish(3, 1, "", "a", 0, 6, records))
        for _ in range(3):
            stage.expect(0, Publish)
        stage.say(0, PublishRefusal(2, 506, "full", 1), Confirmed(3))
        assert client.receive() == BasicRefused(1, [(3, 3)], 506, "full", 3)


def test_mandatory_messages_without_a_queue_come_back_before_the_confirm(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        records = pack_many([b"1", b"2"])
        client.send(BasicPublish(3, 1, "", "nowhere", MANDATORY | PERSISTENT, 2, records))
        assert client.receive() == BasicReturn(1, 3, 312, "NO_ROUTE", "", "nowhere", PERSISTENT, 2, records)
        assert client.receive() == BasicConfirm(1, [(3, 3)])
        client.send(BasicPublish(4, 1, "", "a", MANDATORY | PERSISTENT, 2, records))
        assert stage.expect(0, Publish).batch.flags == PERSISTENT
        stage.confirm(0, 1)
        assert client.receive() == BasicConfirm(1, [(4, 4)])


def test_of_a_publish_by_message_only_what_no_queue_took_comes_back(start_stage: StartStage) -> None:
    stage = start_stage(
        TWO,
        bindings=[
            Binding("/", "amq.headers", "a", "", {"x-match": "all", "to": "a"}),
            Binding("/", "amq.headers", "b", "", {"x-match": "all", "to": "b"}),
        ],
    )
    with RawClient(stage).open() as client:
        messages = [(b"%d" % place, Properties(headers={"to": to})) for place, to in enumerate("aabxxa")]
        client.send(BasicPublish(3, 1, "amq.headers", "k", MANDATORY, 6, join(*messages)))
        returned = client.receive()
        assert isinstance(returned, BasicReturn)
        assert (returned.request, returned.count, returned.records) == (3, 2, join(*messages[3:5]))
        assert [bodies(stage.expect(0, Publish)) for _ in range(2)] == [[b"0", b"1"], [b"5"]]
        assert bodies(stage.expect(1, Publish)) == [b"2"]
        stage.confirm(0, 2)
        stage.confirm(1, 1)
        assert client.receive() == BasicConfirm(1, [(3, 3)])


def test_cc_and_bcc_are_further_keys_and_nobody_sees_bcc(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {}), ("b", 0, {}), ("c", 0, {})])
    with RawClient(stage).open() as client:
        headers = {"CC": ["b", "b", 1, None], "BCC": ["c", ["d"], "nowhere"], "x": 1}
        records = join((b"1", None), (b"2", Properties(headers=headers, app_id="y")), (b"3", None))
        client.send(BasicPublish(3, 1, "", "a", 0, 3, records))
        parts = [stage.expect(0, Publish) for _ in range(3)]
        assert [(set(part.queues), bodies(part)) for part in parts] == [
            ({1}, [b"1"]),
            ({1, 2, 3}, [b"2"]),
            ({1}, [b"3"]),
        ]
        [copied] = unpack(parts[1].batch.records, 1)
        assert copied.properties == Properties(headers={"CC": ["b", "b", 1, None], "x": 1}, app_id="y")
        assert parts[1].batch.routing_key == "a"


@pytest.mark.parametrize(
    ("properties", "code", "text"),
    [
        (Properties(priority=256), 406, "priority 256"),
        (Properties(priority=-1), 406, "priority -1"),
        (Properties(expiration=""), 406, "expiration ''"),
        (Properties(expiration="1.5"), 406, "expiration '1.5'"),
        (Properties(expiration="-1"), 406, "expiration '-1'"),
        (Properties(expiration="315360000001"), 406, "expiration '315360000001'"),
        (Properties(expiration="9" * 5000), 406, "expiration"),
        (Properties(headers={"CC": "a"}), 406, "'CC'"),
        (Properties(headers={"BCC": {"a": 1}}), 406, "'BCC'"),
        (Properties(headers={"CC": ["k" * 256]}), 406, "over 255 bytes"),
        (Properties(headers={"CC": ["k"] * 2000}), 406, "2000 routing keys"),
        (Properties(user_id="root"), 406, "user_id property set to 'root' but authenticated user was 'guest'"),
    ],
)
def test_a_property_without_meaning_refuses_the_whole_publish(
    start_stage: StartStage, properties: Properties, code: int, text: str
) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "", "a", 0, 2, join((b"1", None), (b"2", properties))))
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert (refused.requests, refused.code, refused.taken) == ([(3, 3)], code, 0)
        assert text in refused.text
        client.send(BasicPublish(4, 1, "", "a", 0, 1, join((b"3", Properties(user_id="guest", expiration="0")))))
        assert bodies(stage.expect(0, Publish)) == [b"3"]


def test_an_impersonator_may_set_any_user_id(start_stage: StartStage) -> None:
    stage = start_stage(TWO, user=User("proxy", quick_hash("guest"), ("impersonator",)))
    with RawClient(stage).open(user="proxy") as client:
        client.send(BasicPublish(3, 1, "", "a", 0, 1, join((b"1", Properties(user_id="root")))))
        assert bodies(stage.expect(0, Publish)) == [b"1"]


@pytest.mark.parametrize("kind", ["direct", "headers"])
def test_an_internal_exchange_takes_no_publishes(start_stage: StartStage, kind: str) -> None:
    stage = start_stage(TWO, [Exchange("/", "inner", kind, internal=True)])
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "inner", "a", 0, 1, pack(None, b"x")))
        assert refusals(client.receive()) == [([(3, 3)], ReplyCode.ACCESS_REFUSED, 0)]


def test_publishes_that_go_back_and_forth_grow_into_one_batch_for_each_queue(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {}), ("b", 0, {})])
    with RawClient(stage).open() as client:
        for first in (1, 11):  # the second time by plans
            client.send(
                *(
                    BasicPublish(
                        first + place + 2,
                        1,
                        "",
                        "ab"[place % 2],
                        PERSISTENT,
                        1,
                        pack(None, b"%d" % place),
                        producer=77,
                        sequence=first + place // 2,
                    )
                    for place in range(6)
                )
            )
            one, two = stage.expect(0, Publish), stage.expect(0, Publish)
            assert [bodies(one), bodies(two)] == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]
            assert [(part.producer, part.sequence, part.queues) for part in (one, two)] == [
                (77, first, (1,)),
                (77, first, (2,)),
            ]
            assert one.batch.flags == two.batch.flags == PERSISTENT
            stage.confirm(0, 2 if first == 1 else 4)
            assert client.receive() == BasicConfirm(1, [(first + 2, first + 7)])


def test_a_planned_publish_that_does_not_continue_the_numbers_begins_another_batch(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "", "a", 0, 1, pack(None, b"0"), producer=7, sequence=1))
        assert stage.expect(0, Publish).sequence == 1
        client.send(
            BasicPublish(4, 1, "", "a", 0, 2, pack_many([b"1", b"2"]), producer=7, sequence=2),
            BasicPublish(5, 1, "", "a", 0, 1, pack(None, b"3"), producer=7, sequence=4),
            BasicPublish(6, 1, "", "a", 0, 1, pack(None, b"4"), producer=8, sequence=5),
            BasicPublish(7, 1, "", "a", 0, 1, pack(None, b"6"), producer=8, sequence=7),
        )
        parts = [stage.expect(0, Publish) for _ in range(3)]
        assert [(part.producer, part.sequence, bodies(part)) for part in parts] == [
            (7, 2, [b"1", b"2", b"3"]),
            (8, 5, [b"4"]),
            (8, 7, [b"6"]),
        ]
        stage.shards[0].say(PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "full", 1), Confirmed(4))
        answers = [client.receive() for _ in range(3)]
        assert refusals(*answers) == [([(4, 4)], 506, 1), ([(5, 5)], 506, 0)]
        assert sorted(r for said in answers if isinstance(said, BasicConfirm) for r in said.requests) == [
            (3, 3),
            (6, 7),
        ]


def test_a_planned_publish_is_told_that_its_queue_is_gone(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        for request in (3, 4):
            client.send(BasicPublish(request, 1, "", "a", 0, 1, pack(None, b"x"), producer=7, sequence=request))
            stage.expect(0, Publish)
        stage.tell(QueueRemoved("/", "a"))
        stage.shards[0].say(PublishRefusal(2, ReplyCode.NOT_FOUND, "no queue", 0), Confirmed(2))
        answers = [client.receive(), client.receive()]
        assert refusals(*answers) == [([(4, 4)], ReplyCode.NOT_FOUND, 0)]
        client.send(BasicPublish(5, 1, "", "a", 0, 1, pack(None, b"x"), producer=7, sequence=5))
        assert client.receive() == BasicConfirm(1, [(5, 5)])
