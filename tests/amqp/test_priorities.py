"""Messages of different priorities, published one by one in turns, over real processes."""

from collections import defaultdict

import pytest

from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp import encoder as sending
from shardmq.protocol.amqp.methods.basic import BasicAck, BasicConsumeOk
from shardmq.protocol.amqp.methods.topology import ExchangeDeclareOk, QueueBindOk, QueueDeclareOk
from shardmq.protocol.amqp.methods.transaction import ConfirmSelect, ConfirmSelectOk
from tests.amqp import asking as ask
from tests.gateway.amqp.rawclient import RawClient

HIGHEST = 3
MESSAGES = 1000


def properties(number: int) -> bytes:
    """Delivery mode 2 and a priority, which may be higher than counts."""
    return b"\x18\x00\x02" + bytes([number % 6])


@pytest.mark.parametrize("every", [0, 7, 100], ids=["to it alone", "often to another, too", "at times to another, too"])
def test_priorities_in_turns_keep_the_order_of_each_and_are_all_confirmed(broker: Broker, every: int) -> None:
    queue, other, exchange = f"priorities-{every}", f"other-{every}", f"both-{every}"
    with RawClient(broker.port) as client:
        client.ask(ask.declare_queue(queue, durable=True, arguments={"x-max-priority": HIGHEST}), QueueDeclareOk)
        client.ask(ask.declare_queue(other, durable=True), QueueDeclareOk)
        client.ask(ask.declare_exchange(exchange, "fanout"), ExchangeDeclareOk)
        for each in (queue, other):
            client.ask(ask.bind_queue(each, exchange, ""), QueueBindOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        to_one = sending.method_frame(1, ask.publish("", queue))
        to_both = sending.method_frame(1, ask.publish(exchange, ""))
        said = [
            (to_both if every and number % every == 0 else to_one)
            + sending.content_frames(1, properties(number), b"%d" % number, 131_072)
            for number in range(MESSAGES)
        ]
        client.socket.sendall(b"".join(said))
        confirmed: set[int] = set()
        while len(confirmed) < MESSAGES:
            ack = client.expect(BasicAck)
            first = 1 if ack.multiple else ack.delivery_tag
            confirmed.update(range(first, ack.delivery_tag + 1))
        client.ask(ask.consume(queue, "c", no_ack=True), BasicConsumeOk)
        got = [int(body) for *_, body in ask.deliveries(client, MESSAGES)]
        client.ask(ask.consume(other, "d", no_ack=True), BasicConsumeOk)
        copies = len(range(0, MESSAGES, every)) if every else 0
        assert [int(body) for *_, body in ask.deliveries(client, copies)] == list(range(0, MESSAGES, every or 1))[
            :copies
        ]
    levels: dict[int, list[int]] = defaultdict(list)
    for number in range(MESSAGES):
        levels[min(number % 6, HIGHEST)].append(number)
    assert got == [number for level in sorted(levels, reverse=True) for number in levels[level]]
