"""Alternate, automatically deleted and vanishing exchanges, consumers of all kinds, and publishing again, together."""

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from tests.gateway.rawclient import RawClient

from .combined import deaths, declare, get, is_gone, ranked
from .traffic import bodies, counts, numbers, until


def test_an_alternate_exchange_may_be_declared_later_and_go_again(channel: shardmq.Channel, queue: str) -> None:
    channel.exchange_declare("hopeful", "direct", arguments={"alternate-exchange": "not-yet"})
    with pytest.raises(errors.Unroutable):
        channel.basic_publish("hopeful", "k", b"1", mandatory=True)
    channel.exchange_declare("not-yet", "fanout")
    with pytest.raises(errors.Unroutable):
        channel.basic_publish("hopeful", "k", b"2", mandatory=True)
    channel.queue_bind(queue, "not-yet")
    channel.basic_publish("hopeful", "k", b"3", mandatory=True)
    channel.exchange_delete("not-yet")
    with pytest.raises(errors.Unroutable):
        channel.basic_publish("hopeful", "k", b"4", mandatory=True)
    assert bodies(channel, queue) == [b"3"]


def test_an_alternate_counts_for_what_a_message_reaches_in_all(channel: shardmq.Channel) -> None:
    for queue in ("regular", "rescued"):
        declare(channel, queue)
    channel.exchange_declare("rescue", "fanout")
    channel.queue_bind("rescued", "rescue")
    channel.exchange_declare("front", "direct", arguments={"alternate-exchange": "rescue"})
    channel.queue_bind("regular", "front", "known")
    channel.basic_publish("front", "known", b"one key is enough", shardmq.Properties(headers={"CC": ["unknown"]}))
    assert (bodies(channel, "regular"), bodies(channel, "rescued")) == ([b"one key is enough"], [])
    channel.exchange_declare("blind", "fanout")
    channel.exchange_bind("blind", "front", "dead-end")
    with pytest.raises(errors.Unroutable):  # it was routed, to an exchange that leads nowhere
        channel.basic_publish("front", "dead-end", b"lost", mandatory=True)
    assert bodies(channel, "rescued") == []
    channel.exchange_declare("between", "direct", arguments={"alternate-exchange": "rescue"})
    channel.exchange_bind("between", "front", "via")
    channel.basic_publish("front", "via", b"rescued on its way", mandatory=True)
    assert bodies(channel, "rescued") == [b"rescued on its way"]


def test_auto_delete_exchanges_go_one_after_the_other(channel: shardmq.Channel, queue: str) -> None:
    for name in ("auto.1", "auto.2", "auto.3"):
        channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.exchange_bind("auto.2", "auto.1")
    channel.exchange_bind("auto.3", "auto.2")
    channel.queue_bind(queue, "auto.3")
    channel.queue_unbind(queue, "auto.3")
    for name in ("auto.1", "auto.2", "auto.3"):
        with pytest.raises(errors.NotFound):
            channel.exchange_declare(name, passive=True)


def test_an_auto_delete_exchange_stays_when_it_is_no_more_a_destination(channel: shardmq.Channel) -> None:
    channel.exchange_declare("upstream", "fanout")
    channel.exchange_declare("downstream", "fanout", auto_delete=True)
    channel.exchange_bind("downstream", "upstream")
    with pytest.raises(errors.PreconditionFailed, match="in use"):
        channel.exchange_delete("upstream", if_unused=True)
    channel.exchange_delete("upstream")
    channel.exchange_declare("downstream", passive=True)
    channel.exchange_delete("downstream", if_unused=True)


def test_bindings_differ_by_their_arguments(channel: shardmq.Channel, queue: str) -> None:
    channel.exchange_declare("labelled", "direct")

    def arrive() -> int:
        channel.basic_publish("labelled", "k", b"x")
        return len(bodies(channel, queue))

    channel.queue_bind(queue, "labelled", "k", {"label": 1})
    channel.queue_bind(queue, "labelled", "k")
    assert arrive() == 1
    channel.queue_unbind(queue, "labelled", "k")
    assert arrive() == 1
    channel.queue_unbind(queue, "labelled", "k", {"label": 2})
    assert arrive() == 1
    channel.queue_unbind(queue, "labelled", "k", {"label": 1})
    assert arrive() == 0


def test_publishes_to_an_exchange_that_goes_meanwhile_are_confirmed_or_refused(
    broker: Broker, channel: shardmq.Channel, queue: str
) -> None:
    channel.exchange_declare("vanishing", "fanout")
    channel.queue_bind(queue, "vanishing")
    with shardmq.connect(broker.url) as other:
        publisher = other.channel().publisher(window=100_000)
        publisher.publish_many("vanishing", "", numbers(0, 20_000))
        publisher.flush()
        for number in range(20_000):
            publisher.publish("vanishing", "", b"%d" % number)
            if number == 10_000:
                channel.exchange_delete("vanishing")
        with pytest.raises(errors.NotFound, match="vanishing"):
            publisher.flush()
        publisher.close()
        other.channel().basic_publish("", queue, b"goes on")
    stored = bodies_by_batch(channel, queue)
    assert stored[-1] == b"goes on"
    assert 20_000 <= len(stored) < 40_000
    assert stored[20_000:-1] == numbers(0, len(stored) - 20_001)


def bodies_by_batch(channel: shardmq.Channel, queue: str) -> list[bytes]:
    stored: list[bytes] = []
    for batch in channel.consume_batches(queue, inactivity_timeout=2.0):
        stored += batch.bodies
        batch.ack()
    return stored


def test_a_single_active_consumer_is_followed_by_the_highest_priority_and_then_by_the_oldest(
    channel: shardmq.Channel,
) -> None:
    declare(channel, "succession", x_single_active_consumer=True)
    came: list[tuple[str, bytes]] = []
    for name, priority in (("a", 0), ("b", 1), ("c", 5), ("d", 5)):
        channel.basic_consume(
            "succession",
            lambda m, name=name: came.append((name, m.body)),  # type: ignore[misc]
            consumer_tag=name,
            priority=priority,
            auto_ack=True,
        )
    channel.basic_publish("", "succession", b"0")
    until(lambda: came, "one came")
    for number, leaver in enumerate("acd", 1):
        channel.basic_cancel(leaver)
        channel.basic_publish("", "succession", b"%d" % number)
        until(lambda number=number: len(came) > number, "the next took over")  # type: ignore[misc]
    assert came == [("a", b"0"), ("c", b"1"), ("d", b"2"), ("b", b"3")]


def test_a_queue_with_one_active_consumer_has_no_exclusive_ones(channel: shardmq.Channel) -> None:
    declare(channel, "alone", x_single_active_consumer=True)
    with pytest.raises(errors.AccessRefused, match="x-single-active-consumer"):
        channel.basic_consume("alone", lambda _: None, exclusive=True)
    channel.basic_cancel(channel.basic_consume("alone", lambda _: None))


@pytest.mark.parametrize("tag", [0, -1, 2**63])
def test_a_delivery_tag_that_no_message_has_is_refused_and_costs_nothing(channel: shardmq.Channel, tag: int) -> None:
    for settle in (channel.basic_ack, channel.basic_nack, channel.basic_renew):
        with pytest.raises(errors.PreconditionFailed, match="unknown delivery tag"):
            settle(tag)
    channel.basic_ack(0, multiple=True)
    assert channel.queue_declare().messages == 0


def test_a_consumers_own_timeout_comes_before_its_queues(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare(channel, "patient", x_consumer_timeout=600_000)
    channel.basic_publish("", "patient", b"x")
    messages = channel.consume("patient", timeout_ms=100)
    first, again = next(messages), next(messages)
    assert (first.redelivered, again.redelivered) == (False, True)
    again.ack()
    channel.flush()
    until(lambda: counts(connection, "patient")["valid"] == 0, "it is acked")
    assert channel.is_open
    messages.close()  # type: ignore[attr-defined]


def test_a_lost_connection_counts_as_a_delivery_in_vain(broker: Broker, channel: shardmq.Channel) -> None:
    declare(channel, "lost.dead")
    declare(channel, "lost", dead="lost.dead", x_delivery_limit=1)
    channel.basic_publish("", "lost", b"x")
    for count in range(2):
        with shardmq.connect(broker.url) as other:
            message = get(other.channel(), "lost")
            assert message.deliveries == count
    letter = get(channel, "lost.dead")
    assert deaths(letter) == [("lost", "delivery_limit", 1)]
    letter.ack()


def test_acking_what_was_deleted_with_its_queue_does_no_harm(broker: Broker, channel: shardmq.Channel) -> None:
    declare(channel, "torn-down")
    channel.basic_publish("", "torn-down", b"x")
    held = get(channel, "torn-down")
    with shardmq.connect(broker.url) as other:
        other.channel().queue_delete("torn-down")
    held.ack()
    assert is_gone(channel, "torn-down")
    assert channel.is_open


def test_what_is_sent_again_in_other_portions_is_stored_once_also_by_priority(broker: Broker) -> None:
    def publish(request: int, count: int) -> BasicPublish:
        records = b"".join(pack(ranked(number), b"%d" % number) for number in range(count))
        return BasicPublish(request, 1, "", "loaded", PERSISTENT, count, records, producer=77, sequence=1)

    with shardmq.connect(broker.url) as connection, RawClient(broker).open() as loader:
        channel = connection.channel()
        declare(channel, "loaded", x_max_priority=9)
        for request, count in ((3, 4), (4, 6)):
            loader.send(publish(request, count))
            assert loader.receive() == BasicConfirm(1, [(request, request)])
        assert bodies(channel, "loaded") == numbers(0, 6)[::-1]
