"""What members of groups return, reject and hold for too long, by real processes."""

import time
from itertools import pairwise

import shardmq
from shardmq.cmd.run.broker import Broker

from .traffic import until

SHARED = {"x-group": "workers", "x-group-type": "shared", "x-stream-offset": "first"}


def topic(channel: shardmq.Channel, name: str, count: int) -> None:
    """A topic of one partition with so many messages."""
    channel.topic_declare(name, 1)
    with channel.publisher() as publisher:
        for number in range(count):
            publisher.publish(name, "key", b"%d" % number)


def bodies(channel: shardmq.Channel, queue: str, count: int) -> list[int]:
    """The next messages of a queue or stream, acknowledged."""
    found = []
    arguments = {"x-stream-offset": "first"}
    for message in channel.consume(queue, prefetch=10, arguments=arguments, inactivity_timeout=30):
        found.append(int(message.body))
        message.ack()
        if len(found) == count:
            break
    return found


def test_a_message_that_fails_too_often_goes_to_a_dead_letter_topic(channel: shardmq.Channel) -> None:
    topic(channel, "jobs", 5)
    channel.topic_declare("failed-jobs", 1)
    arguments = {**SHARED, "x-delivery-limit": 2, "x-dead-letter-exchange": "failed-jobs"}
    tries: dict[int, int] = {}
    for message in channel.consume("jobs", prefetch=2, arguments=arguments, inactivity_timeout=30):
        number = int(message.body)
        tries[number] = tries.get(number, 0) + 1
        assert message.redelivered is (tries[number] > 1)
        if number == 2:
            message.nack(delay_ms=20 if tries[number] == 1 else 0)
        else:
            message.ack()
        if sum(tries.values()) == 7:
            break
    assert tries == {0: 1, 1: 1, 2: 3, 3: 1, 4: 1}
    assert bodies(channel, "failed-jobs-0", 1) == [2]
    assert bodies(channel, "jobs-0", 5) == list(range(5)), "a dead letter left its topic"


def test_what_a_shared_group_rejects_goes_to_its_dead_letter_topic_and_exchange(channel: shardmq.Channel) -> None:
    topic(channel, "odd-jobs", 6)
    channel.topic_declare("rejected-jobs", 1)
    channel.queue_declare("rejected", durable=True)
    for group, exchange, key in (("topics", "rejected-jobs", None), ("queues", "", "rejected")):
        letters = {"dead_letter_exchange": exchange} | ({} if key is None else {"dead_letter_routing_key": key})
        options = {"shared": True, "start": "earliest", "prefetch": 2, "auto_commit": False, **letters}
        handled = 0
        with channel.group_consumer("odd-jobs", group, inactivity_timeout=30, **options) as consumer:  # type: ignore[arg-type]
            for message in consumer:
                message.reject() if int(message.body) % 2 else message.ack()
                handled += 1
                if handled == 6:
                    break
    assert bodies(channel, "rejected-jobs-0", 3) == [1, 3, 5]
    found = []
    for message in channel.consume("rejected", prefetch=10, inactivity_timeout=30):
        found.append((int(message.body), message.properties.headers["x-death"][0]["reason"]))
        message.ack()
        if len(found) == 3:
            break
    assert found == [(1, "rejected"), (3, "rejected"), (5, "rejected")]
    for group in ("topics", "queues"):
        until(lambda group=group: channel.group_offsets("odd-jobs", group)[0]["offset"] == 6, "dead letters arrived")


def test_groups_dead_letters_of_the_same_message_all_arrive(channel: shardmq.Channel) -> None:
    topic(channel, "twice-bad", 3)
    channel.queue_declare("graveyard", durable=True)
    for group in ("one", "other"):
        arguments = {
            **SHARED,
            "x-group": group,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "graveyard",
        }
        for message in channel.consume("twice-bad", prefetch=1, arguments=arguments, inactivity_timeout=30):
            message.nack(requeue=False)
            if int(message.body) == 2:
                break
    found = []
    for message in channel.consume("graveyard", inactivity_timeout=30):
        (death,) = (message.properties.headers or {})["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == ("twice-bad-0", "rejected", 1)
        found.append(int(message.body))
        message.ack()
        if len(found) == 6:
            break
    assert sorted(found) == [0, 0, 1, 1, 2, 2]


def test_an_ordered_group_waits_for_what_is_returned_with_a_delay(channel: shardmq.Channel) -> None:
    topic(channel, "in-order", 4)
    order = []
    arguments = {"x-group": "strict", "x-stream-offset": "first"}
    for message in channel.consume("in-order", prefetch=1, arguments=arguments, inactivity_timeout=30):
        order.append(int(message.body))
        if order == [0, 1]:
            message.nack(delay_ms=50)
        else:
            message.ack()
        if len(order) == 5:
            break
    assert order == [0, 1, 1, 2, 3]


def test_a_lease_that_runs_out_gives_the_message_to_another_member(broker: Broker, channel: shardmq.Channel) -> None:
    topic(channel, "leased", 1)
    arguments = {**SHARED, "x-consumer-timeout": 100}
    slow = iter(channel.consume("leased", prefetch=1, arguments=arguments, inactivity_timeout=30))
    assert int(next(slow).body) == 0
    with shardmq.connect(broker.url) as connection:
        for message in connection.channel().consume("leased", prefetch=1, arguments=arguments, inactivity_timeout=30):
            assert message.redelivered
            message.ack()
            break


def test_a_lease_that_is_renewed_stays_with_its_member(broker: Broker, channel: shardmq.Channel) -> None:
    """Another member waits for it meanwhile, and gets the one beside it, which is not renewed."""
    topic(channel, "renewed", 2)
    for lease_ms in (400, 2000, 8000):  # where the machine was too busy for the renewals, a longer one
        arguments = {**SHARED, "x-group": f"workers-{lease_ms}", "x-consumer-timeout": lease_ms}
        messages = channel.consume("renewed", prefetch=2, arguments=arguments)
        renewed, left = next(messages), next(messages)
        pauses, came = [time.monotonic()], list[int]()
        with shardmq.connect(broker.url) as connection, connection.channel() as other:

            def take(message: shardmq.Message, came: list[int] = came) -> None:
                came.append(int(message.body))
                message.ack()

            other.basic_consume("renewed", take, prefetch=2, arguments=arguments)

            def is_over(pauses: list[float] = pauses, renewed: shardmq.Message = renewed) -> bool:
                renewed.renew()
                pauses.append(time.monotonic())
                return pauses[-1] - pauses[0] > 3 * lease_ms / 1000  # noqa: B023  of this turn

            until(is_over, "three leases are over", 60)
            renewed.ack()
            until(lambda: not group_unacked(channel, f"workers-{lease_ms}"), "all is settled")  # noqa: B023
        messages.close()  # type: ignore[attr-defined]
        if max(later - earlier for earlier, later in pairwise(pauses)) < lease_ms / 2000:
            break
    assert came == [int(left.body)]


def test_members_of_a_shared_group_have_no_more_in_flight_than_their_prefetch(
    broker: Broker, channel: shardmq.Channel
) -> None:
    """A window for each: what one settles is replaced, and the other's stays as it is."""
    topic(channel, "windowed", 100)
    held: dict[int, list[shardmq.Message]] = {2: [], 5: []}
    with shardmq.connect(broker.url) as connection:
        for prefetch, kept in held.items():
            connection.channel().basic_consume("windowed", kept.append, prefetch=prefetch, arguments=SHARED)
        until(lambda: group_unacked(channel, "workers", "windowed") == 7, "both windows are full")
        until(lambda: (len(held[2]), len(held[5])) == (2, 5), "no more than that came")
        for message in held[2][:2]:
            message.ack()
        until(lambda: group_unacked(channel, "workers", "windowed") == 7, "both windows are full again")
        until(lambda: (len(held[2]), len(held[5])) == (4, 5), "no more than that came")
        found = [int(message.body) for kept in held.values() for message in kept]
        assert sorted(found) == list(range(9))
    channel.topic_delete("windowed")


def group_unacked(channel: shardmq.Channel, group: str, topic: str = "renewed") -> int:
    return sum(row["unacked"] for row in channel.group_offsets(topic, group))
