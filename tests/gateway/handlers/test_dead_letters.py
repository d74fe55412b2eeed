"""Dead letters: RabbitMQ 3.13's rules record by record, the way to their new home, and what shards are told."""

from collections.abc import Callable

import pytest

from shardmq.bus.messages.dead_letters import DeadLetter, DeadLetterAccepted, DeadLetterRefused, Gone
from shardmq.bus.messages.shard import Confirmed, Publish, PublishRefusal
from shardmq.message.properties import Properties
from shardmq.message.record import pack, pack_raw, unpack, unpack_raw
from shardmq.message.record_batch import AMQP, PERSISTENT, RecordBatch
from shardmq.protocol.amqp.properties import decode
from shardmq.protocol.amqp.tables import wrapped
from shardmq.topology.entities import Binding, Exchange
from tests.gateway.stage import Stage
from tests.protocol.amqp.property_lists import EVERY_TYPE

StartStage = Callable[..., Stage]


def dying(
    first: int, *messages: tuple[bytes, Properties | None], reason: str = "rejected", queue: int = 1
) -> DeadLetter:
    records = b"".join(pack(properties, body) for body, properties in messages)
    batch = RecordBatch("e", "k", PERSISTENT, 1, 7, 40, len(messages), records, 3, 1000)
    return DeadLetter(queue, first, reason, batch)


DLX = {"x-dead-letter-exchange": "dlx"}
FANOUT = [Exchange("/", "dlx", "fanout")]


def bound(*names: str) -> list[Binding]:
    return [Binding("/", "dlx", name, "") for name in names]


def test_a_dead_letter_keeps_its_identity_and_leaves_when_its_home_has_it(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("home", 1, {"x-max-priority": 3})], FANOUT, bound("home"))
    stage.say(0, dying(10, (b"1", Properties(expiration="1000", priority=5)), (b"2", Properties(priority=3))))
    batch = stage.expect(1, Publish).batch
    assert (batch.exchange, batch.routing_key, batch.flags) == ("dlx", "k", PERSISTENT)
    assert (batch.priority, batch.ttl_ms) == (3, None)
    assert (batch.origin, batch.serial, batch.count) == (7, 40, 2)
    assert batch.timestamp_ms > 1_600_000_000_000
    first, second = unpack(batch.records, 2)
    assert (first.body, second.body) == (b"1", b"2")
    assert first.properties is not None
    assert first.properties.headers is not None
    assert first.properties.expiration is None
    assert first.properties.headers["x-death"][0]["exchange"] == "e"
    assert not any(isinstance(said, DeadLetterAccepted) for said in stage.shards[0].heard)
    stage.confirm(1, 1)
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(10, 12)])


def test_it_leaves_when_all_of_its_homes_have_it(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("a", 0, {}), ("b", 1, {})], FANOUT, bound("a", "b"))
    stage.say(0, dying(0, (b"1", None)))
    stage.expect(0, Publish)
    stage.expect(1, Publish)
    stage.confirm(0, 1)
    stage.say(1, PublishRefusal(1, 506, "full"), Confirmed(1))
    assert stage.expect(0, DeadLetterRefused) == DeadLetterRefused(1, [(0, 1)])


def test_what_its_home_took_a_part_of_leaves_in_part(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("home", 1, {})], FANOUT, bound("home"))
    stage.say(0, dying(5, (b"1", None), (b"2", None), (b"3", None)))
    stage.expect(1, Publish)
    stage.say(1, PublishRefusal(1, 506, "full", 2), Confirmed(1))
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(5, 7)])
    assert stage.expect(0, DeadLetterRefused) == DeadLetterRefused(1, [(7, 8)])


@pytest.mark.parametrize(
    ("exchanges", "bindings"),
    [([], []), (FANOUT, [])],
    ids=["no such exchange", "no queue bound"],
)
def test_where_there_is_nowhere_to_go_it_leaves_at_once(
    start_stage: StartStage, exchanges: list[Exchange], bindings: list[Binding]
) -> None:
    stage = start_stage([("q", 0, DLX)], exchanges, bindings)
    stage.say(0, dying(3, (b"1", None)))
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(3, 4)])


def test_dead_letters_of_a_queue_that_a_gateway_does_not_know_stay_where_they_are(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX)])
    stage.say(0, dying(3, (b"1", None), queue=99))
    assert stage.expect(0, DeadLetterRefused) == DeadLetterRefused(99, [(3, 4)])


def test_without_a_coordinator_a_gateway_is_not_sure_that_there_is_nowhere_to_go(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX)])
    stage.lose_coordinator()
    stage.say(0, dying(3, (b"1", None)))
    assert stage.expect(0, DeadLetterRefused) == DeadLetterRefused(1, [(3, 4)])


def test_the_default_exchange_and_a_routing_key_lead_to_one_queue(start_stage: StartStage) -> None:
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "home"}
    stage = start_stage([("q", 0, terms), ("home", 1, {}), ("k", 1, {})])
    stage.say(0, dying(0, (b"1", Properties(headers={"CC": ["k"]}))))
    sent = stage.expect(1, Publish)
    assert (sent.queues, sent.batch.exchange, sent.batch.routing_key) == ((2,), "", "home")


def test_with_its_own_key_cc_counts_again(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {"x-dead-letter-exchange": ""}), ("k", 1, {}), ("copy", 1, {})])
    stage.say(0, dying(0, (b"1", None), (b"2", Properties(headers={"CC": ["copy"]}))))
    assert stage.expect(1, Publish).queues == (2,)
    assert set(stage.expect(1, Publish).queues) == {2, 3}
    stage.confirm(1, 1)
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(0, 1)])
    stage.confirm(1, 2)
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(1, 2)])


def test_an_internal_exchange_takes_dead_letters(start_stage: StartStage) -> None:
    stage = start_stage(
        [("q", 0, DLX), ("home", 1, {})], [Exchange("/", "dlx", "fanout", internal=True)], bound("home")
    )
    stage.say(0, dying(0, (b"1", None)))
    assert stage.expect(1, Publish).queues == (2,)


@pytest.mark.parametrize("reason", ["expired", "maxlen", "delivery_limit", "ack_timeout"])
def test_a_message_does_not_get_back_where_it_died_unless_it_was_rejected(start_stage: StartStage, reason: str) -> None:
    stage = start_stage([("q", 0, DLX), ("other", 1, {})], FANOUT, bound("q", "other"))
    stage.say(0, dying(0, (b"1", None), reason=reason))
    assert stage.expect(1, Publish).queues == (2,)
    stage.confirm(1, 1)
    assert stage.expect(0, DeadLetterAccepted)
    assert not [said for said in stage.shards[0].heard if isinstance(said, Publish)]
    stage.say(0, dying(1, (b"2", None), reason="rejected"))
    assert stage.expect(0, Publish).queues == (1,)


def test_a_chain_of_queues_is_written_down_in_order(start_stage: StartStage) -> None:
    terms = [{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name} for name in ("b", "c", "a")]
    stage = start_stage([("a", 0, terms[0]), ("b", 0, terms[1]), ("c", 0, terms[2])])
    properties: Properties | None = None
    for queue, reason in ((1, "expired"), (2, "rejected"), (3, "expired"), (1, "expired")):
        stage.say(0, dying(queue, (b"1", properties), reason=reason, queue=queue))
        sent = stage.expect(0, Publish)
        assert sent.queues == ({1: 2, 2: 3, 3: 1}[queue],)  # from c it may return to a: b rejected it
        [record] = unpack(sent.batch.records, 1)
        properties = record.properties
    assert properties is not None
    assert properties.headers is not None
    deaths = [(each["queue"], each["reason"], each["count"]) for each in properties.headers["x-death"]]
    assert deaths == [("a", "expired", 2), ("c", "expired", 1), ("b", "rejected", 1)]


def test_a_cycle_without_a_rejection_ends(start_stage: StartStage) -> None:
    terms = [{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name} for name in ("b", "a")]
    stage = start_stage([("a", 0, terms[0]), ("b", 0, terms[1])])
    stage.say(0, dying(0, (b"1", None), reason="expired", queue=1))
    [record] = unpack(stage.expect(0, Publish).batch.records, 1)
    stage.say(0, dying(0, (b"1", record.properties), reason="expired", queue=2))
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(2, [(0, 1)])


def test_headers_as_deep_as_a_gateway_lets_in_are_passed_on(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("home", 1, {})], FANOUT, bound("home"))
    deep = b"\x92\x81\xa7headers\x81\xa1a" + b"\x91" * 390 + b"\xc0\xc4\x00"
    stage.say(0, DeadLetter(1, 0, "expired", RecordBatch("e", "k", 0, 1, 7, 40, 1, deep)))
    assert b"\x91" * 390 in stage.expect(1, Publish).batch.records


def test_each_is_published_under_its_number(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, {"x-dead-letter-exchange": ""}), ("k", 1, {}), ("copy", 0, {})])
    batch = dying(10, (b"1", None), (b"2", Properties(headers={"CC": ["copy"]})), (b"3", None)).batch
    stage.say(0, DeadLetter(1, 10, "rejected", batch, producer=2**63 + 1, gone=[(0, 4), (5, 10)]))
    sent = [stage.expect(1, Publish) for _ in range(3)]
    assert [(publish.producer, publish.sequence) for publish in sent] == [(2**63 + 1, 10 + place) for place in range(3)]
    other = stage.expect(0, Publish)
    assert (other.producer, other.sequence, other.queues) == (2**63 + 1, 11, (3,))
    for shard, queue in ((0, 3), (1, 2)):
        assert stage.expect(shard, Gone) == Gone((queue,), 2**63 + 1, [(0, 4), (5, 10)])


AMQP_MODE = b"\x10\x00\x02"


def dying_amqp(first: int, *messages: tuple[bytes, bytes], reason: str = "rejected", queue: int = 1) -> DeadLetter:
    records = b"".join(pack_raw(raw, body) for body, raw in messages)
    return DeadLetter(
        queue, first, reason, RecordBatch("e", "k", PERSISTENT | AMQP, 1, 7, 40, len(messages), records, 3, 1000)
    )


def test_what_came_by_amqp_stays_so_and_keeps_the_bytes_of_all_that_does_not_change(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("home", 1, {"x-max-priority": 9})], FANOUT, bound("home"))
    before = b"\x2d\x04" + wrapped(b"", EVERY_TYPE) + b"\x05" + b"\x02\xff\xfe" + b"\x045000" + b"\x01c"
    stage.say(0, dying_amqp(10, (b"1", before), (b"2", AMQP_MODE)))
    firsts = stage.expect(1, Publish).batch
    assert (firsts.exchange, firsts.routing_key, firsts.flags) == ("dlx", "k", PERSISTENT | AMQP)
    assert (firsts.origin, firsts.serial, firsts.count, firsts.priority, firsts.ttl_ms) == (7, 40, 1, 5, None)
    [(raw, body)] = unpack_raw(firsts.records, 1)
    assert body == b"1"
    assert raw.startswith(b"\x2c\x04")  # without its expiration
    assert raw.endswith(b"\x05" + b"\x02\xff\xfe" + b"\x01c")
    headers = raw[6:].removesuffix(b"\x05" + b"\x02\xff\xfe" + b"\x01c")
    assert headers.startswith(EVERY_TYPE)
    written = decode(b"\x20\x00" + wrapped(b"", headers.removeprefix(EVERY_TYPE))).headers
    assert written is not None
    [death] = written.pop("x-death")
    assert written == {
        "x-first-death-reason": "rejected",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "e",
        "x-last-death-reason": "rejected",
        "x-last-death-queue": "q",
        "x-last-death-exchange": "e",
    }
    assert (death["count"], death["original-expiration"], death["routing-keys"]) == (1, "5000", ["k"])
    assert b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x01" in headers
    seconds = stage.expect(1, Publish).batch
    [(raw, body)] = unpack_raw(seconds.records, 1)
    assert (body, seconds.serial, seconds.priority) == (b"2", 41, 0)
    after = decode(raw)
    assert after.delivery_mode == 2
    assert after.headers is not None
    assert "original-expiration" not in after.headers["x-death"][0]


def test_a_second_death_of_what_came_by_amqp_touches_what_it_changes(start_stage: StartStage) -> None:
    stage = start_stage([("q", 0, DLX), ("home", 1, {})], FANOUT, bound("home"))
    raw = AMQP_MODE
    for deaths in (1, 2, 3):
        stage.say(0, dying_amqp(deaths, (b"1", raw)))
        [(raw, _)] = unpack_raw(stage.expect(1, Publish).batch.records, 1)
        headers = decode(raw).headers
        assert headers is not None
        assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [("q", deaths)]
        assert len(headers) == 7


def test_copies_of_what_came_by_amqp_count_again_or_go_with_a_key_of_the_queue(start_stage: StartStage) -> None:
    cc = b"\x02CC" + wrapped(b"A", wrapped(b"S", b"copy"))
    raw = b"\x20\x00" + wrapped(b"", cc + EVERY_TYPE)
    stage = start_stage([("q", 0, {"x-dead-letter-exchange": ""}), ("k", 1, {}), ("copy", 1, {})])
    stage.say(0, dying_amqp(0, (b"1", raw)))
    sent = stage.expect(1, Publish)
    assert set(sent.queues) == {2, 3}
    assert cc + EVERY_TYPE in sent.batch.records
    terms = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "home"}
    stage = start_stage([("q", 0, terms), ("home", 1, {}), ("k", 1, {})])
    stage.say(0, dying_amqp(0, (b"1", raw)))
    sent = stage.expect(1, Publish)
    assert sent.queues == (2,)
    assert EVERY_TYPE in sent.batch.records
    assert cc not in sent.batch.records


def test_what_came_by_amqp_is_routed_by_its_headers(start_stage: StartStage) -> None:
    asked = Binding("/", "dlx", "home", "", {"x-match": "all", "b": -1, "S": "a"})
    stage = start_stage([("q", 0, DLX), ("home", 1, {})], [Exchange("/", "dlx", "headers")], [asked])
    stage.say(0, dying_amqp(0, (b"1", b"\x20\x00" + wrapped(b"", EVERY_TYPE)), (b"2", AMQP_MODE)))
    assert stage.expect(1, Publish).batch.count == 1
    assert stage.expect(0, DeadLetterAccepted) == DeadLetterAccepted(1, [(1, 2)])


def test_a_letter_that_cannot_be_sent_on_stays_and_ends_no_gateway(
    start_stage: StartStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise ZeroDivisionError("nobody thought of it")

    stage = start_stage([("q", 0, DLX), ("home", 1, {})], FANOUT, bound("home"))
    with monkeypatch.context() as patch:
        patch.setattr("shardmq.gateway.handlers.dead_letters.with_death", fail)
        stage.say(0, dying(10, (b"1", None), (b"2", None)))
        assert stage.expect(0, DeadLetterRefused) == DeadLetterRefused(1, [(10, 12)])
    stage.say(0, dying(10, (b"1", None)))
    assert stage.expect(1, Publish).batch.count == 1
