"""What waits for room within a channel's limit, against a list of messages."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shardmq.bus.messages.shard import Delivered
from shardmq.gateway.session.prefetch.waiting import SharedPrefetch, numbers_of
from shardmq.message.record import pack, unpack
from shardmq.message.record_batch import RecordBatch


def delivered(first: int, count: int) -> Delivered:
    records = b"".join([pack(None, b"%d" % number) for number in range(first, first + count)])
    return Delivered(7, first, False, RecordBatch("", "k", 0, 1, 2, 1000 + first, count, records))


def bodies(part: Delivered) -> list[int]:
    """The numbers of its messages; each has the body and the serial it came with."""
    numbers = [int(record.body) for record in unpack(part.batch.records, part.batch.count)]
    assert numbers == list(range(part.first, part.first + part.batch.count))
    assert part.batch.serial == 1000 + part.first
    return numbers


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("ab"), st.integers(1, 9)),
        st.tuples(st.just("take"), st.none() | st.integers(-1, 12), st.just(0)),
        st.tuples(
            st.just("drop"), st.sampled_from("ab"), st.none() | st.tuples(st.integers(0, 40), st.integers(0, 40))
        ),
        st.tuples(st.just("lose"), st.sampled_from("ab"), st.just(0)),
    ),
    max_size=30,
)


@given(steps)
def test_messages_wait_in_the_order_they_came(said: list[tuple[str, Any, Any]]) -> None:
    consumers: dict[str, Any] = {
        name: SimpleNamespace(name=name, link=SimpleNamespace(life=0), auto_ack=False) for name in "ab"
    }
    shared = SharedPrefetch(1)
    model: list[tuple[str, int, int]] = []  # consumer, its link's life, number
    following = dict.fromkeys("ab", 0)

    def is_there(each: tuple[str, int, int]) -> bool:
        return each[1] == consumers[each[0]].link.life

    for what, who, detail in said:
        if what == "put":
            shared.put(consumers[who], delivered(following[who], detail))
            numbers = range(following[who], following[who] + detail)
            model += [(who, consumers[who].link.life, number) for number in numbers]
            following[who] += detail
        elif what == "lose":
            consumers[who].link.life += 1
        elif what == "drop":
            start, end = (0, None) if detail is None else detail
            dropped = [number for part in shared.drop(consumers[who], start, end) for number in bodies(part)]
            gone = [each for each in model if each[0] == who and each[2] >= start and (end is None or each[2] < end)]
            assert dropped == [number for who, life, number in gone if is_there((who, life, number))]
            model = [each for each in model if each not in gone]
        else:
            room, taken = who, []
            while (part := shared.take(room)) is not None:
                consumer, messages = part
                taken += [(consumer.name, consumer.link.life, number) for number in bodies(messages)]
                room = None if room is None else room - messages.batch.count
            there = [each for each in model if is_there(each)]
            assert taken == (there if who is None else there[: max(0, who)])
            model = [each for each in model if each not in taken]


class Receiving:
    """A consumer, as far as what waits for it knows it."""

    def __init__(self, *, auto_ack: bool = False) -> None:
        self.link = SimpleNamespace(life=0)
        self.auto_ack = auto_ack


def test_all_is_dropped_by_consumer_in_the_order_of_waiting_but_for_what_its_shard_has_lost() -> None:
    lost, first, unasked, second = Receiving(), Receiving(), Receiving(auto_ack=True), Receiving()
    shared = SharedPrefetch(1)
    for consumer, start in ((lost, 0), (second, 0), (first, 3), (unasked, 0), (second, 9), (first, 6)):
        shared.put(consumer, delivered(start, 3))  # type: ignore[arg-type]
    lost.link.life += 1
    dropped: dict[Any, list[Delivered]] = shared.drop_all(with_unasked=False)  # type: ignore[assignment]
    assert {consumer: numbers_of(messages) for consumer, messages in dropped.items()} == {
        second: [(0, 3), (9, 12)],
        first: [(3, 9)],
    }
    assert list(dropped) == [second, first]
    assert [*shared.drop_all(with_unasked=True)] == [unasked]
    assert not shared.has_waiting


def test_what_waits_long_is_told_from_what_is_handed_out_soon() -> None:
    consumer: Any = Receiving()
    shared = SharedPrefetch(1)
    assert not shared.waits_long(0)
    shared.put(consumer, delivered(0, 100))
    assert shared.waits_long(0)
    assert shared.take(10) is not None
    assert not shared.waits_long(0)
    assert shared.waits_long(shared.handed_on)


def test_what_takes_no_room_is_handed_out_whole_where_there_is_some() -> None:
    consumer: Any = SimpleNamespace(link=SimpleNamespace(life=0), auto_ack=True)
    shared = SharedPrefetch(1)
    shared.put(consumer, delivered(0, 5))
    assert shared.take(0) is None
    taken = shared.take(1)
    assert taken is not None
    assert bodies(taken[1]) == list(range(5))
