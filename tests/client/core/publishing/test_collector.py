"""What a publisher collects: side by side for queues by their names, in order for all else."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.client.api.defaults import WINDOW
from shardmq.client.api.results import ServerProperties
from shardmq.client.core.batching import (
    BATCH_RECORDS,
    BY_QUEUE,
    NO_EXTRAS,
    QUEUE_WINDOW,
    PublishBatch,
    PublishOptions,
    flags_of,
    window_of,
)
from shardmq.client.core.publishing.collector import BUILDERS_MAX, MIXED_BATCHES, SENT_BATCHES_MAX, BatchCollector
from shardmq.errors import ContentTooLarge, InvalidRequest
from shardmq.message import record as records
from shardmq.message.properties import Properties
from shardmq.message.record_batch import MANDATORY, PERSISTENT

Published = tuple[str, str, Properties | None, PublishOptions]
"""How a message is published: exchange, routing key, properties, extras."""

COPIED = Properties(headers={"CC": ["elsewhere"]})
MANDATORILY = PublishOptions(mandatory=True)
PROPERTIES = st.sampled_from([None, Properties(type="a"), Properties(delivery_mode=1), Properties(delivery_mode=2)])
ONE_EXCHANGE = st.lists(st.tuples(st.just("x"), st.sampled_from("kl"), PROPERTIES, st.just(NO_EXTRAS)))
ANY = st.lists(
    st.tuples(
        st.sampled_from(["", "", "x"]),
        st.sampled_from("klm"),
        PROPERTIES | st.just(COPIED),
        st.sampled_from([NO_EXTRAS, NO_EXTRAS, MANDATORILY, PublishOptions(delay_ms=5)]),
    )
)


def add(collecting: BatchCollector, published: Published, body: bytes) -> None:
    filling = collecting.filling
    head = None
    if not filling.is_like(*published):
        head = collecting.turn_to(*published)
        filling = collecting.filling
    filling.check(body)
    filling.bodies.append(body if head is None else (head, body))
    filling.size += len(body)


def collected(messages: list[Published]) -> list[PublishBatch]:
    """The batches that messages become when nothing sends them in between; each has its number for a body."""
    collecting = BatchCollector()
    for number, published in enumerate(messages):
        add(collecting, published, b"%d" % number)
    assert collecting.count == len(messages)
    batches = collecting.take()
    assert (collecting.count, collecting.take()) == (0, [])
    return batches


def numbers_of(batch: PublishBatch) -> list[int]:
    return [int(record.body) for record in records.unpack(batch[4], batch[3])]


@given(ANY)
def test_every_message_is_in_one_batch_with_its_own_route_properties_and_extras(messages: list[Published]) -> None:
    seen = {}
    for batch in collected(messages):
        exchange, key, flags, count, packed, delay_ms, *_ = batch
        for record in records.unpack(packed, count):
            assert int(record.body) not in seen
            seen[int(record.body)] = (exchange, key, record.properties, flags, delay_ms)
    assert seen == {
        number: (exchange, key, properties, flags_of(properties, extras.mandatory), extras.delay_ms)
        for number, (exchange, key, properties, extras) in enumerate(messages)
    }


@given(ANY)
def test_messages_that_may_meet_in_a_queue_are_sent_in_the_order_in_which_they_were_published(
    messages: list[Published],
) -> None:
    batches = [(batch[6], batch[1], numbers_of(batch)) for batch in collected(messages)]
    for place, (numbering, key, numbers) in enumerate(batches):
        assert numbers == sorted(numbers)
        for other, later_key, later in batches[place + 1 :]:
            never_meet = numbering == other == BY_QUEUE and key != later_key
            assert never_meet or max(numbers) < min(later)


@given(ANY)
def test_what_only_its_routing_key_leads_to_a_queue_is_numbered_for_that_queue(messages: list[Published]) -> None:
    for batch in collected(messages):
        ways = {(messages[number][0], messages[number][2] is COPIED) for number in numbers_of(batch)}
        assert (batch[6] == BY_QUEUE) == (ways == {("", False)})


@given(ONE_EXCHANGE)
def test_neighbours_alike_in_exchange_key_and_flags_share_a_batch(messages: list[Published]) -> None:
    routes = [(exchange, key, flags) for exchange, key, flags, *_ in collected(messages)]
    assert all(left != right for left, right in pairwise(routes))


@given(st.lists(st.sampled_from("klm")))
def test_messages_to_queues_by_their_names_make_one_batch_for_each_queue(keys: list[str]) -> None:
    batches = collected([("", key, None, NO_EXTRAS) for key in keys])
    assert sorted((batch[1], batch[3]) for batch in batches) == [(key, keys.count(key)) for key in sorted(set(keys))]


def test_a_queue_gets_plain_and_mandatory_messages_in_their_order() -> None:
    batches = collected([("", "k", None, extras) for extras in (NO_EXTRAS, MANDATORILY, MANDATORILY, NO_EXTRAS)])
    assert [(batch[2], batch[3]) for batch in batches] == [
        (PERSISTENT, 1),
        (PERSISTENT | MANDATORY, 2),
        (PERSISTENT, 1),
    ]


def test_where_properties_alternate_more_is_collected_before_it_is_sent() -> None:
    collecting = BatchCollector()
    for number in range(MIXED_BATCHES * BATCH_RECORDS):
        assert not collecting.is_full
        add(collecting, ("", "q", Properties(priority=number % 2), NO_EXTRAS), b"x")
    assert collecting.is_full
    assert [batch[3] for batch in collecting.take()] == [MIXED_BATCHES * BATCH_RECORDS]


def test_of_many_queues_more_is_collected_before_it_is_sent() -> None:
    collecting = BatchCollector()
    for count, queues in ((BATCH_RECORDS, 1), (BATCH_RECORDS, 50), (SENT_BATCHES_MAX * BATCH_RECORDS, 1000)):
        for number in range(count):
            assert not collecting.is_full
            add(collecting, ("", f"q{number % queues}", None, NO_EXTRAS), b"x")
        assert collecting.is_full
        assert sum(batch[3] for batch in collecting.take()) == count
        add(collecting, ("", "other", None, NO_EXTRAS), b"x")
        collecting.take()


def test_the_window_is_as_large_as_the_queues_in_use_need_unless_it_is_given() -> None:
    adaptive, given = BatchCollector(), BatchCollector(window=100)
    assert (adaptive.window, given.window) == (WINDOW, 100)
    for number in range(1000):
        for collecting in (adaptive, given):
            add(collecting, ("", f"q{number}", None, NO_EXTRAS), b"x")
    adaptive.take()
    assert (adaptive.window, given.window) == (window_of(1000), 100)
    assert window_of(1000) == 1000 * QUEUE_WINDOW > WINDOW
    add(adaptive, ("amq.topic", "a.b", None, NO_EXTRAS), b"x")
    adaptive.take()
    assert adaptive.window == WINDOW


def test_more_routing_keys_than_are_remembered_lose_nothing() -> None:
    keys = [f"q{number}" for number in range(BUILDERS_MAX + 10)] * 2
    batches = collected([("", key, None, NO_EXTRAS) for key in keys])
    assert sorted(number for batch in batches for number in numbers_of(batch)) == list(range(len(keys)))


def test_numbered_messages_go_on_in_their_batch_only_with_the_next_number() -> None:
    collecting = BatchCollector(producer=7)
    for sequence in (3, 4, 9):
        if collecting.next_sequence() != sequence:
            collecting.turn_to("", "k", None, PublishOptions(producer=7, sequence=sequence))
        collecting.filling.bodies.append(b"x")
    assert [(batch[3], batch[6], batch[7]) for batch in collecting.take()] == [(2, 7, 3), (1, 7, 9)]


def test_large_bodies_collected_by_many_threads_are_cut_into_several_batches() -> None:
    collecting = BatchCollector()
    for _ in range(10):
        add(collecting, ("", "k", None, NO_EXTRAS), b"x" * 200_000)
    assert [batch[3] for batch in collecting.take()] == [1] * 10


def test_a_body_appended_to_a_batch_that_another_thread_turned_from_is_swept_up() -> None:
    collecting = BatchCollector()
    collecting.turn_to("x", "a", None)
    late = collecting.filling
    late.bodies.append(b"1")
    collecting.turn_to("x", "b", None)
    assert [batch[3] for batch in collecting.take()] == [1]
    late.bodies.append(b"2")
    assert collecting.sweep(late) == [("x", "a", PERSISTENT, 1, records.pack(None, b"2"), 0, 0, 0, 0)]


def test_a_body_appended_to_the_batch_of_a_queue_after_it_was_sent_goes_with_the_next() -> None:
    collecting = BatchCollector()
    collecting.turn_to("", "a", None)
    late = collecting.filling
    collecting.turn_to("", "b", None)
    assert collecting.take() == []
    late.bodies.append(b"1")
    assert collecting.sweep(late) == []
    assert collecting.count == 1
    add(collecting, ("", "a", None, NO_EXTRAS), b"2")
    [batch] = collecting.take()
    assert (batch[1], numbers_of(batch)) == ("a", [1, 2])


def test_a_body_that_is_not_bytes_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="a message's body is bytes"):
        BatchCollector().filling.check("text")  # type: ignore[arg-type]


def test_properties_of_another_type_are_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"properties are shardmq\.Properties"):
        BatchCollector().turn_to("", "k", {"type": "x"})  # type: ignore[arg-type]


def test_a_body_over_what_the_broker_takes_now_is_refused_also_where_it_took_more_before() -> None:
    limits = [2000, 1000]
    collecting = BatchCollector(0, lambda: ServerProperties(message_max=limits[0]))
    collecting.turn_to("", "k", None)
    collecting.filling.check(bytes(2000))
    collecting.turn_to("", "l", None)
    del limits[0]
    collecting.turn_to("", "k", None)
    collecting.filling.check(bytes(1000))
    with pytest.raises(ContentTooLarge, match=r"1001 bytes was not sent: .* 1000 at most"):
        collecting.filling.check(bytes(1001))


def test_properties_over_their_limit_are_refused_before_they_are_sent() -> None:
    with pytest.raises(ContentTooLarge, match="bytes of properties; the limit is 131072"):
        BatchCollector().turn_to("", "k", Properties(headers={"long": "x" * 140_000}))


@pytest.mark.parametrize("properties", [Properties(headers={"id": 1 << 64}), Properties(message_id="\ud800")])
def test_properties_that_cannot_be_written_are_refused_before_they_are_sent(properties: Properties) -> None:
    for before in (None, Properties(headers={"id": 1})):
        collector = BatchCollector()
        collector.turn_to("", "k", before)
        with pytest.raises(InvalidRequest, match=r"the properties of a message: .*(64 bits|UTF-8)"):
            collector.turn_to("", "k", properties)


def test_a_routing_key_over_255_bytes_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidRequest, match="256 bytes"):
        BatchCollector().turn_to("", "ü" * 128, None)
