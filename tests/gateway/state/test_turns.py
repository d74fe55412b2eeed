"""The turns that a publish takes: they follow from its numbers alone."""

from hypothesis import given
from hypothesis import strategies as st

from shardmq.gateway.state.turns import TURN_MESSAGES, turn_of, turns_of
from shardmq.limits import FRAMED_PRODUCERS
from shardmq.protocol.native.operations.basic import BasicPublish


def publish(count: int, producer: int, sequence: int, transaction: int = 0) -> BasicPublish:
    return BasicPublish(1, 1, "topic", "", 0, count, b"", 0, producer, sequence, transaction)


@given(st.integers(1, FRAMED_PRODUCERS - 1), st.integers(0, 10**6), st.integers(1, 5000))
def test_a_messages_turn_is_the_same_in_every_frame(producer: int, sequence: int, count: int) -> None:
    turns = turns_of(publish(count, producer, sequence))
    assert [start for start, _, _ in turns] == [0, *[end for _, end, _ in turns[:-1]]]
    assert turns[-1][1] == count
    for start, end, turn in turns:
        assert 0 < end - start <= TURN_MESSAGES
        assert {turn_of(producer, number) for number in (sequence + start, sequence + end - 1)} == {turn}


def test_who_sends_again_in_the_same_frames_has_one_turn_a_frame() -> None:
    producer = FRAMED_PRODUCERS + 77
    assert len(turns_of(publish(5000, producer, 123_456))) == 1
    one_by_one = [turns_of(publish(1, producer, number))[0][2] % 4 for number in range(8)]
    assert sorted(one_by_one) == [0, 0, 1, 1, 2, 2, 3, 3]
    frames = [turns_of(publish(500, producer, number))[0][2] % 4 for number in range(0, 4000, 500)]
    assert sorted(frames) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_attempts_of_transactions_may_come_in_other_frames() -> None:
    assert len(turns_of(publish(1000, FRAMED_PRODUCERS + 77, 0, transaction=5))) == 4
