"""Publishing with a transaction, and the requests about transactions; coordinator and shards are the test's."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shardmq.bus.messages.base import Answer, Inspect, Refusal
from shardmq.bus.messages.shard import Publish
from shardmq.bus.messages.transactions import Seal
from shardmq.errors import AccessRefused, PreconditionFailed, ReplyCode
from shardmq.limits import (
    ATTEMPTS_MAX,
    FRAMED_PRODUCERS,
    KEYED_NUMBERS,
    OFFSETS_FROM,
    REQUEST_BYTES_MAX,
    TRANSACTION_TIMEOUT_MS,
)
from shardmq.message import keyed_records
from shardmq.message.properties import Properties
from shardmq.message.record import pack
from shardmq.message.record_batch import KEYED, MANDATORY, PERSISTENT
from shardmq.protocol.native.frames import frame
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish, BasicRefused, BasicReturn
from shardmq.protocol.native.operations.codec import TYPES, encode
from shardmq.protocol.native.operations.connection import Ok, Refused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import TopologyList
from shardmq.protocol.native.operations.transaction import (
    TransactionAbort,
    TransactionBegin,
    TransactionCommit,
    TransactionSeal,
)
from shardmq.topology.changes import BindingAdded, TransactionBegun, TransactionEnded
from shardmq.topology.commands import AbortTransaction, BeginTransaction, CommitTransaction
from shardmq.topology.entities import Binding, OpenTransaction, User
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage
from tests.warm import quick_hash

StartStage = Callable[..., Stage]
TWO = [("a", 0, {}), ("b", 1, {})]
ANN = User("ann", quick_hash("guest"), ())
ONE = pack(None, b"x")


def begun(number: int = 7, user: str = "guest", vhost: str = "/", touched_ms: int = 0) -> OpenTransaction:
    return OpenTransaction(vhost, f"orders-{number}", number, user, 60_000, touched_ms)


def staged(request: int, transaction: int = 7, producer: int = 9, sequence: int = 0) -> BasicPublish:
    return BasicPublish(request, 1, "", "a", PERSISTENT, 1, ONE, 0, producer, sequence, transaction)


def keyed(request: int, transaction: int, producer: int, sequence: int) -> BasicPublish:
    """A publish of two messages with keys of their own, to be staged."""
    records = keyed_records.pack([(None, b"1", "a"), (None, b"2", "a")])
    return BasicPublish(request, 1, "", "", PERSISTENT | KEYED, 2, records, 0, producer, sequence, transaction)


def answered(stage: Stage, client: RawClient, operation: Operation) -> Any:
    """What the gateway says to a request that the coordinator has to hear of."""
    client.send(operation)
    stage.until(lambda: len(stage.commands) == 1)
    said = client.receive()
    assert isinstance(said, Ok | Refused), said
    return said.result if isinstance(said, Ok) else (said.code, said.text)


def test_a_publish_with_a_transaction_carries_its_number_to_the_shard(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        client.send(msgspec.structs.replace(staged(3), delay_ms=50))
        published = stage.expect(0, Publish)
        assert (published.transaction, published.producer, published.sequence, published.delay_ms) == (7, 9, 0, 50)
        stage.confirm(0, 1)
        assert client.receive() == BasicConfirm(1, [(3, 3)])


def test_publishes_are_joined_within_a_transaction_and_not_across(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun(7), begun(8)])
    with RawClient(stage).open() as client:
        client.send(
            staged(3, 7, 9, 0),
            staged(4, 7, 9, 1),
            staged(5, 8, 9, 2),
            staged(6, 8, 9, 3),
            staged(7, 0, 9, 4),
            staged(8, 0, 9, 5),
        )
        stage.until(lambda: sum(each.batch.count for each in stage.shards[0].heard if isinstance(each, Publish)) == 6)
        sent = [each for each in stage.shards[0].heard if isinstance(each, Publish)]
        assert [(each.transaction, each.sequence, each.batch.count) for each in sent] == [
            (7, 0, 2),
            (8, 2, 2),
            (0, 4, 2),
        ]


def test_staged_messages_keep_their_numbers_where_others_would_be_sorted(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {"x-max-priority": 2})], transactions=[begun()])
    with RawClient(stage).open() as client:
        records = b"".join(pack(Properties(priority=place // 2), b"%d" % place) for place in range(6))
        client.send(BasicPublish(3, 1, "", "a", PERSISTENT, 6, records, 0, FRAMED_PRODUCERS + 1, 100, 7))
        parts = [stage.expect(0, Publish) for _ in range(3)]
        assert [(part.sequence, part.batch.priority, part.transaction) for part in parts] == [
            (100, 0, 7),
            (102, 1, 7),
            (104, 2, 7),
        ]


def test_a_mandatory_message_that_no_queue_takes_comes_back_while_it_is_staged(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        client.send(BasicPublish(3, 1, "", "nowhere", MANDATORY, 1, ONE, 0, 9, 0, 7))
        assert isinstance(client.receive(), BasicReturn)
        assert client.receive() == BasicConfirm(1, [(3, 3)])


@pytest.mark.parametrize(
    ("publish", "code", "text"),
    [
        (staged(3, 99), ReplyCode.PRECONDITION_FAILED, "transaction 99 is over or unknown"),
        (staged(3, 2**63 - 1), ReplyCode.PRECONDITION_FAILED, "begin it again"),
        (staged(3, 8), ReplyCode.PRECONDITION_FAILED, "transaction 8 is over or unknown"),
        (staged(3, 6), ReplyCode.ACCESS_REFUSED, "transaction 6 ('orders-6') in vhost '/' refused for user 'ann'"),
        (staged(3, 7, 0), ReplyCode.SYNTAX_ERROR, "needs its attempt as producer"),
        (staged(3, 7, 9, OFFSETS_FROM), ReplyCode.SYNTAX_ERROR, f"up to {OFFSETS_FROM}; numbers from"),
        (keyed(3, 7, 9, OFFSETS_FROM - KEYED_NUMBERS + 1), ReplyCode.SYNTAX_ERROR, "number messages from 0"),
    ],
)
def test_a_publish_that_may_not_be_staged_is_refused_and_the_channel_lives_on(
    start_stage: StartStage, publish: BasicPublish, code: ReplyCode, text: str
) -> None:
    transactions = [begun(6, "bob"), begun(7, "ann"), begun(8, "ann", vhost="/other")]
    stage = start_stage(TWO, user=ANN, transactions=transactions)
    with RawClient(stage).open("ann") as client:
        client.send(publish)
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert (refused.requests, refused.code, refused.taken) == ([(3, 3)], code, 0)
        assert text in refused.text
        client.send(staged(4))
        assert stage.expect(0, Publish).transaction == 7


def test_an_administrator_may_publish_in_anybodys_transaction(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun(user="bob")])
    with RawClient(stage).open() as client:
        client.send(staged(3))
        assert stage.expect(0, Publish).transaction == 7


def test_a_transaction_is_known_from_its_begin_to_its_end(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        stage.tell(TransactionBegun(begun()))
        client.send(staged(3))
        assert stage.expect(0, Publish).transaction == 7
        stage.tell(TransactionEnded("/", "orders-7", 7, True, [9], 1))
        client.send(staged(4, sequence=1))
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert refused.code == ReplyCode.PRECONDITION_FAILED


def test_while_the_coordinator_is_away_an_unknown_transaction_may_only_be_new(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        stage.lose_coordinator()
        client.send(staged(3, 8))
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert refused.code == ReplyCode.RESOURCE_ERROR
        assert "is not there now" in refused.text
        client.send(staged(4))
        assert stage.expect(0, Publish).transaction == 7


def test_routes_are_remembered_while_transactions_come_and_go(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    route = stage.state.find_route("/", "amq.direct", "k")
    stage.tell(TransactionBegun(begun()), TransactionBegun(begun(8)))
    stage.tell(TransactionEnded("/", "orders-7", 7, False, [], 1))
    assert stage.state.find_route("/", "amq.direct", "k") is route
    stage.tell(TransactionEnded("/", "orders-8", 8, False, [], 1), BindingAdded(Binding("/", "amq.direct", "a", "k")))
    after = stage.state.find_route("/", "amq.direct", "k")
    assert (route, after and [queues for _, queues in after]) == ((), [(1,)])


@pytest.mark.parametrize(("is_committed", "state"), [(False, "open"), (True, "committed")])
def test_begin_answers_with_number_and_state(start_stage: StartStage, is_committed: bool, state: str) -> None:
    stage = start_stage(TWO)
    stage.answers[BeginTransaction] = 7, is_committed
    with RawClient(stage).open() as client:
        result = answered(stage, client, TransactionBegin(3, 1, "orders"))
        assert result == {"number": 7, "state": state}
        assert stage.commands == [BeginTransaction("/", "orders", "guest", TRANSACTION_TIMEOUT_MS)]


def test_begin_carries_the_timeout_that_was_asked_for(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    stage.answers[BeginTransaction] = 7, False
    with RawClient(stage).open() as client:
        answered(stage, client, TransactionBegin(3, 1, "orders", 1234))
        assert stage.commands == [BeginTransaction("/", "orders", "guest", 1234)]


@pytest.mark.parametrize(("user", "decider"), [(ANN, "ann"), (User("ann", ANN.password, ("administrator",)), "")])
def test_who_decides_is_told_to_the_coordinator_unless_they_may_always(
    start_stage: StartStage, user: User, decider: str
) -> None:
    stage = start_stage(TWO, user=user)
    stage.answers[CommitTransaction] = True
    with RawClient(stage).open("ann") as client:
        assert answered(stage, client, TransactionCommit(3, 1, "orders", 7, [(9, 5), (4, 0)])) == {"visible": True}
        assert stage.commands.pop() == CommitTransaction("/", "orders", 7, decider, [(9, 5), (4, 0)])
        assert answered(stage, client, TransactionAbort(4, 1, "orders")) is None
        assert stage.commands == [AbortTransaction("/", "orders", 0, decider)]


def test_a_refusal_of_the_coordinators_is_passed_on(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    stage.answers[AbortTransaction] = PreconditionFailed("transaction 'orders' was committed")
    with RawClient(stage).open() as client:
        code, text = answered(stage, client, TransactionAbort(3, 1, "orders", 7))
        assert (code, text) == (ReplyCode.PRECONDITION_FAILED, "transaction 'orders' was committed")
        stage.commands.clear()
        stage.answers[CommitTransaction] = AccessRefused("bob's")
        assert answered(stage, client, TransactionCommit(4, 1, "orders", 7, []))[0] == ReplyCode.ACCESS_REFUSED


@pytest.mark.parametrize("name", ["", "two\nlines", "ü" * 200])
@pytest.mark.parametrize(
    "make",
    [
        lambda name: TransactionBegin(3, 1, name),
        lambda name: TransactionCommit(3, 1, name, 7, []),
        lambda name: TransactionAbort(3, 1, name),
    ],
    ids=["begin", "commit", "abort"],
)
def test_what_can_be_no_name_is_refused(start_stage: StartStage, make: Callable[[str], Operation], name: str) -> None:
    stage = start_stage(TWO)
    with RawClient(stage).open() as client:
        client.send(make(name))
        refused = client.receive()
        assert isinstance(refused, Refused)
        assert (refused.code, stage.commands) == (ReplyCode.SYNTAX_ERROR, [])
        assert "transaction" in refused.text


def test_a_commit_may_name_as_many_attempts_as_there_may_be(start_stage: StartStage) -> None:
    stage = start_stage(TWO)
    stage.answers[CommitTransaction] = False
    attempts = [(2**63 - 1 - place, 2**63 - 1) for place in range(ATTEMPTS_MAX)]
    with RawClient(stage).open() as client:
        operation = TransactionCommit(3, 1, "orders", 7, attempts)
        assert len(encode(operation)) > 8 * REQUEST_BYTES_MAX
        assert answered(stage, client, operation) == {"visible": False}
        assert stage.commands == [CommitTransaction("/", "orders", 7, "", attempts)]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (TransactionBegin, b"\x93\x03\x01\xc0"),  # no name
        (TransactionBegin, b"\x94\x03\x01\xa1x\xff"),  # a timeout below 0
        (TransactionSeal, b"\x94\x03\x01\x00\x09"),  # number 0
        (TransactionSeal, b"\x94\x03\x01\x07\x00"),  # attempt 0
        (TransactionSeal, b"\x94\x03\x01\x07\xcf" + b"\xff" * 8),  # 64 bits
        (TransactionCommit, b"\x95\x03\x01\xa1x\x07\x91\x91\x09"),  # an attempt without its messages
        (TransactionCommit, b"\x95\x03\x01\xa1x\x07\x91\x92\x09\xff"),  # fewer than none
        (TransactionCommit, b"\x95\x03\x01\xa1x\x07\xce\x00\x01\x00\x01"),  # cut off
        (TransactionAbort, b"\x94\x03\x01\xa1x\xff"),  # a number below 0
        (
            BasicPublish,
            b"\x9b\x03\x01\xa0\xa1a\x00\x01\xc4\x04\x92\xc0\xc4\x00\x00\x00\x00\xa1x",
        ),  # a name
    ],
)
def test_what_is_no_such_request_closes_the_connection(
    start_stage: StartStage, kind: type[Operation], payload: bytes
) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    client = RawClient(stage).open()
    client.socket.sendall(frame(TYPES[kind], payload))
    assert kind.__name__ in client.expect_close(ReplyCode.SYNTAX_ERROR)
    client.socket.close()


def test_a_commit_of_more_attempts_than_there_may_be_closes_the_connection(start_stage: StartStage) -> None:
    client = RawClient(start_stage(TWO)).open()
    client.send(TransactionCommit(3, 1, "orders", 7, [(1, 1)] * (ATTEMPTS_MAX + 1)))
    assert "TransactionCommit" in client.expect_close(ReplyCode.SYNTAX_ERROR)
    client.socket.close()


def test_an_attempt_is_sealed_by_every_shard_behind_what_was_published(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        client.send(staged(3), TransactionSeal(4, 1, 7, 9))
        seals = [stage.expect(shard, Seal) for shard in (0, 1)]
        assert [(seal.transaction, seal.attempt) for seal in seals] == [(7, 9), (7, 9)]
        assert stage.expect(0, Publish).transaction == 7
        stage.say(1, Answer(stage.request(seals[1]), (2, 20)))
        stage.confirm(0, 1)
        assert client.receive() == BasicConfirm(1, [(3, 3)])
        stage.say(0, Answer(stage.request(seals[0]), (300, 4000)))
        assert client.receive() == Ok(4, 1, {"messages": 302, "bytes": 4020})


def test_what_one_shard_refuses_to_seal_is_refused_at_once_and_once(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        client.send(TransactionSeal(3, 1, 7, 9))
        first, second = [stage.expect(shard, Seal) for shard in (0, 1)]
        stage.say(0, Refusal(stage.request(first), ReplyCode.PRECONDITION_FAILED, "transaction 7 is over"))
        assert client.receive() == Refused(3, 1, ReplyCode.PRECONDITION_FAILED, "transaction 7 is over")
        stage.say(1, Refusal(stage.request(second), ReplyCode.PRECONDITION_FAILED, "here as well"))
        client.send(TransactionSeal(4, 1, 7, 9))
        for shard in (0, 1):
            stage.say(shard, Answer(stage.request(stage.expect(shard, Seal)), (0, 0)))
        assert client.receive() == Ok(4, 1, {"messages": 0, "bytes": 0})


@pytest.mark.parametrize(
    ("number", "code"),
    [(99, ReplyCode.PRECONDITION_FAILED), (8, ReplyCode.PRECONDITION_FAILED), (6, ReplyCode.ACCESS_REFUSED)],
)
def test_sealing_takes_an_undecided_transaction_of_ones_own(
    start_stage: StartStage, number: int, code: ReplyCode
) -> None:
    stage = start_stage(TWO, user=ANN, transactions=[begun(6, "bob"), begun(8, "ann", vhost="/other")])
    with RawClient(stage).open("ann") as client:
        client.send(TransactionSeal(3, 1, number, 9))
        refused = client.receive()
        assert isinstance(refused, Refused)
        assert refused.code == code


def tables(*staged_by_shard: list[dict[str, int]]) -> list[dict[str, Any]]:
    return [{"role": "shard", "staged": rows, "queues": []} for rows in staged_by_shard]


def counts(number: int, attempts: int, messages: int, size: int) -> dict[str, int]:
    return {"number": number, "attempts": attempts, "messages": messages, "bytes": size}


def listed(stage: Stage, client: RawClient, *answers: Any) -> list[dict[str, Any]]:
    client.send(TopologyList(3, 1, "transactions"))
    for shard, answer in enumerate(answers):
        stage.say(shard, Answer(stage.request(stage.expect(shard, Inspect)), answer))
    said = client.receive()
    assert isinstance(said, Ok), said
    rows: list[dict[str, Any]] = said.result
    return rows


def test_undecided_transactions_are_listed_with_what_is_staged(start_stage: StartStage) -> None:
    transactions = [begun(7, "bob"), begun(8, touched_ms=2**62), begun(9, vhost="/other")]
    stage = start_stage(TWO, transactions=transactions)
    with RawClient(stage).open() as client:
        rows = listed(stage, client, *tables([counts(7, 2, 30, 400), counts(9, 1, 1, 1)], [counts(7, 1, 3, 40)]))
        idle = rows[0].pop("idle_ms")
        assert idle > 1_000_000_000_000
        assert rows == [
            {
                "name": "orders-7",
                "number": 7,
                "vhost": "/",
                "user": "bob",
                "timeout_ms": 60_000,
                "attempts": 3,
                "messages": 33,
                "bytes": 440,
            },
            {
                "name": "orders-8",
                "number": 8,
                "vhost": "/",
                "user": "guest",
                "timeout_ms": 60_000,
                "idle_ms": 0,
                "attempts": 0,
                "messages": 0,
                "bytes": 0,
            },
        ]


def test_what_is_staged_is_unknown_while_a_shard_is_away(start_stage: StartStage) -> None:
    stage = start_stage(TWO, transactions=[begun()])
    with RawClient(stage).open() as client:
        (row,) = listed(stage, client, *tables([counts(7, 2, 30, 400)]))
        assert (row["attempts"], row["messages"], row["bytes"]) == (None, None, None)
