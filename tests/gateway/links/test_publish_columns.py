"""Publishes and acks of many queues on their way to a shard: few messages, and each publisher hears of its own."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from shardmq.bus.messages.columns import COLUMN_ENTRIES_MAX, Acks, Publishes
from shardmq.bus.messages.shard import Ack, Confirmed, Publish, PublishRefusal
from shardmq.errors import ReplyCode
from shardmq.gateway.links.publishes.publish_columns import COLUMN_BYTES_MAX
from shardmq.gateway.links.publishes.publish_plan import PublishPlan
from shardmq.gateway.links.publishes.publish_window import PublishWindow
from shardmq.gateway.links.settlements import post_acks
from shardmq.message.keyed_records import runs
from shardmq.message.record import pack, unpack
from shardmq.message.record_batch import KEYED, RecordBatch


@dataclass(eq=False)
class Publisher:
    """What a channel heard of its publishes."""

    more_confirmed: int = 0
    is_confirming: bool = True
    confirmed: list[tuple[int, int]] = field(default_factory=list)
    refused: list[tuple[int, int]] = field(default_factory=list)

    def confirm(self, requests: list[tuple[int, int]]) -> None:
        self.confirmed += requests

    def refuse(self, first: int, last: int, _code: int, _text: str, _taken: int = 0) -> None:
        self.refused.append((first, last))


class Link:
    """A window to a shard that is there; what is posted is kept."""

    is_open = True

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.post = self.posted.append
        self.serial = 1
        self.window = PublishWindow(self, "shard-0", lambda _queue: True, self.stamp)  # type: ignore[arg-type]
        self.plans: dict[tuple[int, str, int], PublishPlan] = {}

    def stamp(self, batch: RecordBatch) -> None:
        batch.timestamp_ms, batch.origin, batch.serial = 5, 9, self.serial
        self.serial += batch.count

    def publish(
        self, who: Publisher, request: int, queue: int, body: bytes = b"x", exchange: str = "", flags: int = 1
    ) -> None:
        key = (queue, exchange, flags)
        plan = self.plans.setdefault(key, PublishPlan.of((queue,), exchange, f"q{queue}", flags))
        self.window.add_planned(who, request, plan, pack(None, body))

    def publish_run(self, who: Publisher, requests: range, queue: int) -> None:
        plan = self.plans.setdefault((queue, "", 1), PublishPlan.of((queue,), "", f"q{queue}", 1))
        self.window.add_run(who, requests, plan, [pack(None, b"%d" % request) for request in requests])


@pytest.fixture
def link() -> Link:
    return Link()


def bodies(publishes: Publishes) -> list[list[bytes]]:
    return [[record.body for record in unpack(batch.records, batch.count)] for batch in publishes.batches()]


def test_a_run_is_what_its_publishes_are_one_by_one() -> None:
    who, other = Publisher(), Publisher()
    together, single = Link(), Link()
    runs = [(who, range(1, 9, 2), 1), (who, range(2, 9, 2), 2), (other, range(1, 4), 1), (who, range(9, 12), 1)]
    for target, requests, queue in runs:
        together.publish_run(target, requests, queue)
        for request in requests:
            single.publish(target, request, queue, b"%d" % request)
    assert together.window.unconfirmed_bytes == single.window.unconfirmed_bytes > 0
    for link in (together, single):
        link.window.send()
    assert together.posted == single.posted
    single.window.lost("gone")
    heard = sorted(who.refused), sorted(other.refused)
    who.refused.clear()
    other.refused.clear()
    together.window.lost("gone")
    assert (sorted(who.refused), sorted(other.refused)) == heard
    assert together.window.unconfirmed_bytes == 0


def test_publishes_to_several_queues_go_as_one_message(link: Link) -> None:
    who = Publisher()
    for request, queue in enumerate([1, 2, 1, 3], 1):
        link.publish(who, request, queue, b"%d" % request)
    link.window.send()
    (sent,) = link.posted
    assert (sent.queues, sent.keys, sent.counts, sent.serial) == ([1, 2, 3], ["q1", "q2", "q3"], [2, 1, 1], 1)
    assert bodies(sent) == [[b"1", b"3"], [b"2"], [b"4"]]
    assert [batch.serial for batch in sent.batches()] == [1, 3, 4]
    assert link.serial == 5
    link.window.on_confirmed(Confirmed(3))
    assert sorted(who.confirmed) == [(number, number) for number in range(1, 5)]
    assert link.window.is_settled
    assert link.window.unconfirmed_bytes == 0


def test_a_publish_alone_goes_by_itself(link: Link) -> None:
    link.publish(Publisher(), 1, 1)
    link.window.send()
    assert [type(sent) for sent in link.posted] == [Publish]


def test_those_of_another_exchange_or_mode_go_as_another_message(link: Link) -> None:
    who = Publisher()
    link.publish(who, 1, 1)
    link.publish(who, 2, 2)
    link.publish(who, 3, 3, exchange="ex")
    link.publish(who, 4, 4, exchange="ex")
    link.publish(who, 5, 5, exchange="ex", flags=0)
    link.window.send()
    assert [(sent.exchange, sent.flags, sent.queues) for sent in link.posted] == [
        ("", 1, [1, 2]),
        ("ex", 1, [3, 4]),
        ("ex", 0, [5]),
    ]


def test_a_message_has_so_many_of_them_at_most(link: Link) -> None:
    who = Publisher()
    for number in range(COLUMN_ENTRIES_MAX + 1):
        link.publish(who, 1 + number, 1 + number)
    link.window.send()
    assert [len(sent.queues) for sent in link.posted] == [COLUMN_ENTRIES_MAX, 1]
    link.window.on_confirmed(Confirmed(COLUMN_ENTRIES_MAX))
    assert len(who.confirmed) == COLUMN_ENTRIES_MAX
    link.window.on_confirmed(Confirmed(COLUMN_ENTRIES_MAX + 1))
    assert link.window.is_settled


def test_large_ones_go_by_themselves(link: Link) -> None:
    who = Publisher()
    for number in (1, 2, 3):
        link.publish(who, number, number, bytes(COLUMN_BYTES_MAX) if number == 2 else b"x")
    link.window.send()
    assert [sent.queues for sent in link.posted] == [(2,), [1, 3]]


def test_one_that_is_refused_leaves_its_neighbours_confirmed_and_each_publisher_hears_of_its_own(link: Link) -> None:
    one, other = Publisher(), Publisher()
    link.publish(one, 1, 1)
    link.publish(other, 1, 2)
    link.publish(one, 2, 3)
    link.publish(other, 2, 4)
    link.window.send()
    link.window.on_refusal(PublishRefusal(3, ReplyCode.RESOURCE_ERROR, "full"))
    link.window.on_confirmed(Confirmed(4))
    assert (one.confirmed, one.refused) == ([(1, 1)], [(2, 2)])
    assert (other.confirmed, other.refused) == ([(1, 1), (2, 2)], [])


def test_messages_for_one_queue_with_different_keys_go_as_one_batch_with_a_key_each(link: Link) -> None:
    who = Publisher()
    common = PublishPlan.of((1,), "ex", "", 1 | KEYED)
    keys = {key: PublishPlan.of((1,), "ex", key, 1, 0, common) for key in ("a", "b")}
    for request, key in enumerate(["a", "b", "b", "a"], 1):
        link.window.add_planned(who, request, keys[key], pack(None, b"%d" % request))
    link.publish(who, 5, 2, exchange="ex")
    assert link.window.unconfirmed()[who] == 5
    link.window.send()
    mixed, other = (batch for sent in link.posted for batch in sent.batches())
    assert (mixed.routing_key, mixed.flags, mixed.count, mixed.serial) == ("", 1 | KEYED, 4, 1)
    assert (other.routing_key, other.flags) == ("q2", 1)
    assert [(batch.routing_key, batch.count) for batch in runs(mixed)] == [("a", 1), ("b", 2), ("a", 1)]
    link.window.on_refusal(PublishRefusal(1, ReplyCode.RESOURCE_ERROR, "full", 2))
    link.window.on_confirmed(Confirmed(2))
    assert (sorted(who.confirmed), who.refused) == ([(1, 1), (2, 2), (5, 5)], [(3, 3), (4, 4)])


def test_batches_for_one_queue_that_differ_in_more_than_keys_go_as_one_message_in_their_order(link: Link) -> None:
    who = Publisher()
    plans = {key: PublishPlan.of((1,), "ex", key, 1) for key in ("a", "b")}
    for request, key in enumerate(["a", "b", "b", "a"], 1):
        link.window.add_planned(who, request, plans[key], pack(None, b"%d" % request))
    assert link.window.unconfirmed()[who] == 4
    link.window.send()
    (sent,) = link.posted
    assert (sent.queues, sent.keys, sent.counts) == ([1, 1, 1], ["a", "b", "a"], [1, 2, 1])
    assert bodies(sent) == [[b"1"], [b"2", b"3"], [b"4"]]
    link.window.on_refusal(PublishRefusal(2, ReplyCode.RESOURCE_ERROR, "full"))
    link.window.on_confirmed(Confirmed(3))
    assert (sorted(who.confirmed), who.refused) == ([(1, 1), (4, 4)], [(2, 2), (3, 3)])


def test_a_large_batch_for_a_queue_and_one_of_another_kind_keep_their_places_among_its_others(link: Link) -> None:
    who = Publisher()
    small, large = (PublishPlan.of((1,), "ex", key, 1) for key in ("small", "large"))
    for request, plan in enumerate([small, large, small, large], 1):
        link.window.add_planned(who, request, plan, pack(None, bytes(COLUMN_BYTES_MAX if plan is large else 1)))
    batch = RecordBatch("ex", "numbered", 1, 0, 0, 0, 1, pack(None, b"x"))
    link.window.add(who, 5, Publish((1,), batch, 7, 1), None, 0, False)
    link.window.send()
    assert [sent.batch.routing_key for sent in link.posted] == ["small", "large", "small", "large", "numbered"]
    link.window.lost("gone")
    assert sorted(who.refused) == [(number, number) for number in range(1, 6)]


def test_two_publishers_to_one_queue_share_its_batch(link: Link) -> None:
    one, other = Publisher(), Publisher()
    link.publish(one, 1, 1, b"a")
    link.publish(other, 1, 1, b"b")
    link.publish(one, 2, 1, b"c")
    link.window.send()
    (sent,) = link.posted
    assert [record.body for record in unpack(sent.batch.records, sent.batch.count)] == [b"a", b"b", b"c"]
    link.window.on_confirmed(Confirmed(1))
    assert (one.confirmed, other.confirmed) == ([(1, 1), (2, 2)], [(1, 1)])


def test_all_are_refused_when_the_shard_goes_away(link: Link) -> None:
    who = Publisher()
    link.publish(who, 1, 1)
    link.publish(who, 2, 2)
    link.window.send()
    assert link.window.unconfirmed() == {who: 2}
    link.publish(who, 3, 3)
    link.window.lost("gone")
    assert sorted(who.refused) == [(1, 1), (2, 2), (3, 3)]
    assert link.window.is_settled


@dataclass(eq=False)
class Settling:
    """A consumer with something settled."""

    number: int
    settled: list[tuple[int, int]]


def test_acks_of_many_consumers_go_as_one_message_and_several_ranges_of_one_by_themselves() -> None:
    consumers = [
        Settling(1, [(0, 3)]),
        Settling(3, [(1, 2)]),
        Settling(2, [(4, 5), (7, 9)]),
        Settling(4, [(6, 7)]),
    ]
    posted: list[Any] = []
    post_acks(consumers, posted.append)  # type: ignore[arg-type]
    assert posted == [Acks([1, 3], [0, 1], [3, 2]), Ack(2, [(4, 5), (7, 9)]), Acks([4], [6], [7])]
    assert [consumer.settled for consumer in consumers] == [[], [], [], []]


def test_the_acks_of_one_consumer_go_by_themselves() -> None:
    posted: list[Any] = []
    post_acks([Settling(1, [(0, 3)])], posted.append)  # type: ignore[list-item]
    assert posted == [Ack(1, [(0, 3)])]


@pytest.mark.parametrize("confirming", [(False, False), (True, False), (False, True)])
def test_the_shard_hears_whether_anybody_waits_for_a_confirm(link: Link, confirming: tuple[bool, bool]) -> None:
    for queue, is_confirming in enumerate(confirming, 1):
        link.publish(Publisher(is_confirming=is_confirming), 1, queue)
    link.window.send()
    (posted,) = link.posted
    assert isinstance(posted, Publishes)
    assert posted.unawaited is not any(confirming)
