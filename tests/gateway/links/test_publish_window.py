"""Publishes on their way to a shard: what gathers while it has enough to answer; the shards are the test's."""

from collections.abc import Callable

from shardmq.bus.messages.base import Reset
from shardmq.bus.messages.shard import Confirmed, Get, Publish
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.publishes.publish_window import GATHERED_BYTES, GROWN_BYTES, PublishWindow
from shardmq.message.record import pack, unpack
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicGet, BasicPublish, BasicRefused
from shardmq.protocol.native.operations.fields import Operation
from shardmq.protocol.native.operations.topology import TopologyList
from tests.gateway.rawclient import RawClient
from tests.gateway.stage import Stage

StartStage = Callable[..., Stage]


def publish(client: RawClient, request: int, body: bytes = b"x") -> None:
    client.send(BasicPublish(request, 1, "", "a", 0, 1, pack(None, body)))


def bodies(publishes: list[Publish]) -> list[bytes]:
    return [record.body for each in publishes for record in unpack(each.batch.records, each.batch.count)]


def of_kind(stage: Stage, kind: type[Publish]) -> list[Publish]:
    heard, stage.shards[0].heard = stage.shards[0].heard, []
    return [message for message in heard if isinstance(message, kind)]


def envelopes(stage: Stage) -> int:
    peer = stage.shards[0].peer
    assert peer is not None
    return peer._session.received


def take_a_pass(client: RawClient) -> None:
    client.ask(TopologyList, "exchanges")


def test_small_publishes_gather_while_a_shard_has_some_to_answer(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        publish(client, 2, b"0")
        first = stage.expect(0, Publish)
        before = envelopes(stage)
        for number in range(1, 31):
            publish(client, 2 + number, b"%d" % number)
            take_a_pass(client)
        stage.confirm(0, 1)
        sent = [first]
        while len(bodies(sent)) < 31:
            stage.until(lambda: bool(stage.shards[0].heard))
            sent += of_kind(stage, Publish)
        assert bodies(sent) == [b"%d" % number for number in range(31)]
        assert envelopes(stage) - before < 20  # three, in fact; but a slow machine ticks in between
        stage.confirm(0, len(sent))
        confirmed = 0
        while confirmed < 31:
            said: Operation | None = client.receive()
            assert isinstance(said, BasicConfirm)
            confirmed += sum([last + 1 - first for first, last in said.requests])


def test_a_request_takes_what_has_gathered_along(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        publish(client, 2, b"0")
        stage.expect(0, Publish)
        publish(client, 3, b"1")
        client.send(BasicGet(4, 1, "a"))
        stage.until(lambda: any(isinstance(message, Get) for message in stage.shards[0].heard))
        assert [type(message) for message in stage.shards[0].heard] == [Publish, Get]


def test_what_is_large_does_not_wait(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        for number in range(5):
            publish(client, 2 + number, b"x" * GATHERED_BYTES)
            stage.expect(0, Publish)


def test_a_shard_that_is_long_in_answering_hears_all_the_same(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        for number in range(5):
            publish(client, 2 + number)
            stage.expect(0, Publish)


def test_a_shard_that_was_lost_has_nothing_to_answer(start_stage: StartStage) -> None:
    stage = start_stage([("a", 0, {})])
    with RawClient(stage).open() as client:
        for request in (2, 3):
            publish(client, request)
            stage.expect(0, Publish)
        assert stage.state.links[0].confirms.may_gather
        stage.say(0, Reset("it starts anew"))
        refused = client.receive()
        assert isinstance(refused, BasicRefused)
        assert not stage.state.links[0].confirms.may_gather


class Wire:
    """A link to a shard that keeps what is posted."""

    def __init__(self) -> None:
        self.is_open = True
        self.posted: list[Publish] = []
        self.post = self.posted.append


class Told:
    """Whoever publishes."""

    is_confirming = True

    def __init__(self) -> None:
        self.confirmed: list[tuple[int, int]] = []
        self.confirm = self.confirmed.extend

    def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:
        raise AssertionError((first, last, code, text, taken))


def test_where_many_batches_grow_more_gathers_than_is_worth_an_envelope_of_its_own() -> None:
    wire, told = Wire(), Told()
    window = PublishWindow(wire, "shard-0", lambda _: True, lambda _: None)  # type: ignore[arg-type]
    plans = [PublishPlan.of((number,), "", f"q{number}", 1) for number in range(1, 2 * GATHERED_BYTES // GROWN_BYTES)]
    records = bytes(GROWN_BYTES // 4)
    request = 0
    for _ in range(2):  # envelopes that the shard has to answer
        request += 1
        window.add_numbered(told, request, plans[0], (1, records, 7, request))
        window.send()
    sent = len(wire.posted)
    for turn in range(1, 4):
        for plan in plans:
            request += 1
            window.add_numbered(told, request, plan, (1, records, 8, turn))
    assert window.may_gather
    assert len(wire.posted) == sent
    for plan in plans:
        request += 1
        window.add_numbered(told, request, plan, (1, records, 8, 4))
    assert not window.may_gather
    window.send()
    assert [publish.batch.count for publish in wire.posted[sent:]] == [4] * len(plans)
    window.on_confirmed(Confirmed(len(wire.posted)))
    assert window.is_settled
    assert sorted(number for first, last in told.confirmed for number in range(first, last + 1)) == [
        *range(1, request + 1)
    ]


def test_a_message_alone_is_refused_where_the_shard_is_away_and_nothing_of_it_stays() -> None:
    class Refused(Told):
        def refuse(self, first: int, last: int, code: int, text: str, taken: int = 0) -> None:  # noqa: ARG002
            refused.append((first, last))

    wire, refused = Wire(), list[tuple[int, int]]()
    window = PublishWindow(wire, "shard-0", lambda _: True, lambda _: None)  # type: ignore[arg-type]
    plan = PublishPlan.of((1,), "", "q", 1)
    wire.is_open = False
    window.add_planned(Refused(), 1, plan, b"record")
    assert (refused, window.is_settled, window.unconfirmed_bytes) == ([(1, 1)], True, 0)
    wire.is_open = True
    window.add_planned(Refused(), 2, plan, b"record")
    window.send()
    assert (len(wire.posted), window.unconfirmed_bytes) == (1, len(b"record"))
