"""What clients are told of their publishes: everything once, in few frames."""

import struct
from random import Random

import pytest

from shardmq.gateway.amqp.outbox import ConfirmWriter
from shardmq.protocol.amqp.methods import codec as methods
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicNack


def frames(data: bytes, channel: int = 1) -> list[BasicAck | BasicNack]:
    said = []
    while data:
        kind, on, size = struct.unpack_from(">BHI", data)
        assert (kind, on, data[7 + size]) == (1, channel, 0xCE)
        method = methods.decode(data[7 : 7 + size], on)
        assert isinstance(method, BasicAck | BasicNack)
        said.append(method)
        data = data[8 + size :]
    return said


def nack(tag: int, *, multiple: bool = False) -> BasicNack:
    return BasicNack(tag, multiple=multiple, requeue=False)


def ack(tag: int, *, multiple: bool = False) -> BasicAck:
    return BasicAck(tag, multiple=multiple)


def test_what_is_settled_without_a_gap_is_told_by_one_frame() -> None:
    told = ConfirmWriter()
    assert frames(told.acks(1, [(1, 1)])) == [ack(1)]
    assert frames(told.acks(1, [(2, 500)])) == [ack(500, multiple=True)]
    assert frames(told.acks(1, [(502, 600), (501, 501)])) == [ack(600, multiple=True)]
    assert frames(told.nacks(1, [(601, 602)])) == [nack(602, multiple=True)]
    assert frames(told.acks(1, [])) == []


def test_what_is_behind_a_gap_is_told_one_by_one() -> None:
    told = ConfirmWriter()
    assert frames(told.acks(7, [(1, 3), (5, 6), (8, 8)]), 7) == [ack(3, multiple=True), ack(5), ack(6), ack(8)]
    assert frames(told.nacks(7, [(10, 11)]), 7) == [nack(10), nack(11)]
    assert frames(told.acks(7, [(4, 4)]), 7) == [ack(4)]
    assert told.settled == 6
    assert frames(told.acks(7, [(7, 7), (9, 9)]), 7) == [ack(9, multiple=True)]
    assert told.settled == 11
    assert frames(told.acks(7, [(12, 13)]), 7) == [ack(13, multiple=True)]


def test_a_nack_tells_of_no_more_than_what_is_not_stored() -> None:
    told = ConfirmWriter()
    assert frames(told.nacks(1, [(3, 4)])) == [nack(3), nack(4)]
    assert frames(told.nacks(1, [(1, 1)])) == [nack(1)]
    assert frames(told.acks(1, [(2, 2)])) == [ack(2)]
    assert told.settled == 4


class Client:
    """Keeps account as clients do."""

    def __init__(self, published: int) -> None:
        self.waiting = set(range(1, published + 1))
        self.acked: set[int] = set()
        self.nacked: set[int] = set()

    def hear(self, said: BasicAck | BasicNack) -> None:
        tag = said.delivery_tag
        about = {number for number in self.waiting if number <= tag} if said.multiple else {tag}
        assert about <= self.waiting, "told twice"
        self.waiting -= about
        (self.acked if isinstance(said, BasicAck) else self.nacked).update(about)


@pytest.mark.parametrize("seed", range(50))
def test_in_whatever_order_shards_settle_clients_hear_of_each_publish_once_and_the_truth(seed: int) -> None:
    random = Random(seed)
    ranges, number = [], 1
    while number < 200:
        last = number + random.choice([0, 0, 1, 5, 20])
        ranges.append((number, last, random.random() < 0.8))
        number = last + 1
    random.shuffle(ranges)
    told, client = ConfirmWriter(), Client(number - 1)
    while ranges:
        count = random.randint(1, 5)
        some, ranges = ranges[:count], ranges[count:]
        for is_stored in (True, False):
            those = [(first, last) for first, last, is_it in some if is_it is is_stored]
            for said in frames(told.acks(1, those) if is_stored else told.nacks(1, those)):
                client.hear(said)
            settled = {n for first, last in those for n in range(first, last + 1)}
            assert settled <= (client.acked if is_stored else client.nacked)
