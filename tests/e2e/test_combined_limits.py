"""Limits, priorities and delays together; purging and deleting while things are under way."""

import shardmq

from .combined import deaths, declare, get, is_gone, ranked, ready
from .traffic import bodies, counts, numbers, publish_all, take, until


def test_delivery_limit_priority_and_dead_letters_together(channel: shardmq.Channel) -> None:
    declare(channel, "limited.dead", x_max_priority=5)
    declare(channel, "limited", dead="limited.dead", x_max_priority=5, x_delivery_limit=1)
    for priority in (1, 4):
        channel.basic_publish("", "limited", b"%d" % priority, ranked(priority))
    seen = []
    for _ in range(4):
        message = get(channel, "limited")
        seen.append((message.body, message.deliveries))
        message.nack()
    assert seen == [(b"4", 0), (b"4", 1), (b"1", 0), (b"1", 1)]
    until(lambda: ready(channel, "limited.dead") == 2, "both are dead")
    letters = take(channel, "limited.dead")
    assert [letter.body for letter in letters] == [b"4", b"1"]
    assert {tuple(deaths(letter)) for letter in letters} == {(("limited", "delivery_limit", 1),)}


def test_giving_back_with_a_delay_counts_as_a_delivery_in_vain(channel: shardmq.Channel) -> None:
    declare(channel, "vain.dead")
    declare(channel, "vain", dead="vain.dead", x_delivery_limit=2)
    channel.basic_publish("", "vain", b"x")
    for count in range(3):
        message = get(channel, "vain")
        assert message.deliveries == count
        message.nack(delay_ms=20)
    letter = get(channel, "vain.dead")
    assert deaths(letter) == [("vain", "delivery_limit", 1)]
    letter.ack()


def test_what_comes_back_after_a_delay_takes_its_place_among_its_priority(channel: shardmq.Channel) -> None:
    declare(channel, "ranked", x_max_priority=5)
    for body, priority in ((b"low", 1), (b"high.1", 4), (b"high.2", 4)):
        channel.basic_publish("", "ranked", body, ranked(priority))
    first = get(channel, "ranked")
    assert first.body == b"high.1"
    first.nack(delay_ms=50)
    until(lambda: ready(channel, "ranked") == 3, "it is back")
    assert bodies(channel, "ranked") == [b"high.1", b"high.2", b"low"]


def test_a_delayed_publish_has_its_priority_when_it_is_due(channel: shardmq.Channel) -> None:
    declare(channel, "later", x_max_priority=5)
    channel.basic_publish("", "later", b"later", ranked(5), delay_ms=30)
    channel.basic_publish("", "later", b"now", ranked(1))
    until(lambda: ready(channel, "later") == 2, "it is due")
    assert bodies(channel, "later") == [b"later", b"now"]


def test_a_time_to_live_begins_when_a_delayed_message_is_due(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare(channel, "brief.dead")
    declare(channel, "brief", dead="brief.dead", x_message_ttl=900, x_max_length=1)
    for body in (b"1", b"2"):
        channel.basic_publish("", "brief", body, delay_ms=150)
    until(lambda: counts(connection, "brief")["delayed"] == 0, "both are due")
    until(lambda: ready(channel, "brief.dead") == 2, "both are dead")
    letters = take(channel, "brief.dead")
    assert [(letter.body, *deaths(letter)) for letter in letters] == [
        (b"1", ("brief", "maxlen", 1)),
        (b"2", ("brief", "expired", 1)),
    ]


def test_what_is_given_back_to_a_full_queue_is_its_head_and_gives_way(channel: shardmq.Channel) -> None:
    declare(channel, "tight.dead")
    declare(channel, "tight", dead="tight.dead", x_max_length=2)
    channel.basic_publish("", "tight", b"0")
    held = get(channel, "tight")
    publish_all(channel, "tight", numbers(1, 3))
    assert ready(channel, "tight") == 2
    held.nack()
    until(lambda: ready(channel, "tight.dead") == 1, "one gave way")
    assert (bodies(channel, "tight"), bodies(channel, "tight.dead")) == (numbers(1, 3), [b"0"])


def test_a_message_that_expired_while_it_was_out_dies_when_it_is_given_back(channel: shardmq.Channel) -> None:
    declare(channel, "out.dead")
    declare(channel, "out", dead="out.dead")
    channel.basic_publish("", "out", b"marker", shardmq.Properties(expiration="700"))
    channel.basic_publish("", "out", b"held", shardmq.Properties(expiration="700"), delay_ms=1)
    held = get(channel, "out")
    until(lambda: ready(channel, "out.dead") == 1, "the other one has expired")
    assert held.body != bodies(channel, "out.dead")[0]
    held.nack()
    letter = get(channel, "out.dead")
    assert (letter.body, deaths(letter)) == (held.body, [("out", "expired", 1)])
    letter.ack()


def test_a_purge_leaves_what_is_delayed_and_what_is_dying(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare(channel, "stuffed", x_max_length=0, x_overflow="reject-publish")
    declare(channel, "purged", dead="stuffed")
    publish_all(channel, "purged", numbers(0, 4))
    get(channel, "purged").nack(requeue=False)
    get(channel, "purged").nack(delay_ms=1500)
    until(lambda: counts(connection, "purged")["dying"] == 1, "one is dying")
    assert channel.queue_purge("purged") == 2
    table = counts(connection, "purged")
    assert (table["ready"], table["delayed"], table["dying"]) == (0, 1, 1)
    until(lambda: ready(channel, "purged") == 1, "the delayed one is back")
    assert bodies(channel, "purged") == [b"1"]
    channel.queue_delete("purged")


def test_a_queue_can_be_deleted_while_its_dead_letters_and_timers_are_under_way(channel: shardmq.Channel) -> None:
    declare(channel, "closed", x_max_length=0, x_overflow="reject-publish")
    for _ in range(3):
        declare(channel, "fleeting", dead="closed")
        publish_all(channel, "fleeting", numbers(0, 2))
        publish_all(channel, "fleeting", numbers(2, 200), shardmq.Properties(expiration="30"))
        channel.basic_publish("", "fleeting", b"delayed", delay_ms=20)
        held = get(channel, "fleeting")
        held.nack(delay_ms=10)
        get(channel, "fleeting").nack(requeue=False)
        channel.queue_delete("fleeting")
        assert is_gone(channel, "fleeting")
    declare(channel, "fleeting")
    channel.basic_publish("", "fleeting", b"new", delay_ms=60)
    until(lambda: ready(channel, "fleeting") == 1, "its own message is due")
    assert bodies(channel, "fleeting") == [b"new"]
    channel.queue_delete("closed")
