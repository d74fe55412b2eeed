"""What a session promises, over real processes."""

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.limits import DELIVERY_WINDOW_BYTES


def test_an_ack_over_several_deliveries_of_a_cancelled_consumer_settles_them_all(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("cancelled", durable=True)
        with channel.publisher() as publisher:
            publisher.publish_many("", "cancelled", [b"1", b"2", b"3", b"4"])
        messages = channel.consume("cancelled", prefetch=2)
        for _ in range(2):  # each ack brings one more, as a delivery of its own
            next(messages).ack()
            channel.flush()
        held = [next(messages), next(messages)]
        messages.close()
        channel.basic_ack(held[-1].delivery_tag, multiple=True)
        assert channel.queue_declare("cancelled", durable=True).messages == 0
    with shardmq.connect(broker.url) as connection:
        assert connection.channel().basic_get("cancelled") is None


def test_what_a_cancelled_consumer_holds_stays_unacked_until_its_channel_closes(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel, watching = connection.channel(), connection.channel()
        channel.queue_declare("held", durable=True)
        channel.basic_publish("", "held", b"1")
        messages = channel.consume("held", prefetch=1)
        held = next(messages)
        messages.close()
        assert watching.basic_get("held") is None
        channel.close()
        again = watching.basic_get("held")
        assert again is not None
        assert (again.body, again.message_id, again.redelivered) == (held.body, held.message_id, True)
        again.ack()


def test_a_message_larger_than_a_delivery_window_goes_out_behind_a_small_one(broker: Broker) -> None:
    with shardmq.connect(broker.url) as connection:
        channel = connection.channel()
        channel.queue_declare("sizes", durable=True)
        sizes = [5, DELIVERY_WINDOW_BYTES + 1, 400_000, DELIVERY_WINDOW_BYTES - 1000, 3 * DELIVERY_WINDOW_BYTES, 1]
        for size in sizes:
            channel.basic_publish("", "sizes", bytes(size))
        got = []
        for message in channel.consume("sizes", prefetch=100, inactivity_timeout=20):
            got.append(len(message.body))
            message.ack()
            if len(got) == len(sizes):
                break
        assert got == sizes
