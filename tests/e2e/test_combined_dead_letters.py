"""Dead letters together with limits, priorities and exchanges: each is plain alone, and users combine them."""

import pytest

import shardmq
from shardmq import errors

from .combined import deaths, declare, get, is_gone, ranked, ready
from .traffic import bodies, counts, numbers, publish_all, take, until


def test_dead_letters_that_are_too_many_die_again_and_tell_both_deaths(channel: shardmq.Channel) -> None:
    declare(channel, "last")
    declare(channel, "second", dead="last", x_max_length=2)
    declare(channel, "first", dead="second", x_max_length=1)
    publish_all(channel, "first", numbers(0, 6))
    until(lambda: ready(channel, "last") == 3, "three died twice")
    letters = take(channel, "last")
    assert [letter.body for letter in letters] == numbers(0, 3)
    assert {tuple(deaths(letter)) for letter in letters} == {(("second", "maxlen", 1), ("first", "maxlen", 1))}
    headers = letters[0].properties.headers or {}
    assert (headers["x-first-death-queue"], headers["x-last-death-queue"]) == ("first", "second")
    assert (bodies(channel, "second"), bodies(channel, "first")) == (numbers(3, 5), numbers(5, 6))


def test_a_chain_of_dead_letters_tells_its_deaths_as_rabbitmq_does(channel: shardmq.Channel) -> None:
    channel.exchange_declare("chain.dlx", "topic")
    arguments = {"x-dead-letter-exchange": "chain.dlx", "x-dead-letter-routing-key": "to.b"}
    channel.queue_declare("chain.a", durable=True, arguments=arguments)
    declare(channel, "chain.b", dead="chain.c", x_message_ttl=10)
    declare(channel, "chain.c", dead="chain.a")
    channel.queue_bind("chain.b", "chain.dlx", "to.*")
    once = shardmq.Properties(headers={"CC": ["nowhere"]}, expiration="60000")
    channel.basic_publish("", "chain.a", b"1", once)
    for turn in (1, 2):
        get(channel, "chain.a").nack(requeue=False)
        letter = get(channel, "chain.c")
        found = [dict(death) for death in (letter.properties.headers or {})["x-death"]]
        for death in found:
            assert death.pop("time")
        own = {
            "count": turn,
            "reason": "rejected",
            "queue": "chain.a",
            "exchange": "",
            "routing-keys": ["chain.a", "nowhere"],
            "original-expiration": "60000",
        }
        expired = {
            "count": turn,
            "reason": "expired",
            "queue": "chain.b",
            "exchange": "chain.dlx",
            "routing-keys": ["to.b"],
        }
        rejected = {"count": 1, "reason": "rejected", "queue": "chain.c", "exchange": "", "routing-keys": ["chain.c"]}
        assert found == [expired, own] + ([rejected] if turn > 1 else [])
        letter.nack(requeue=False)
    bodies(channel, "chain.a")


def test_a_rejection_lets_a_message_back_where_it_died(channel: shardmq.Channel) -> None:
    declare(channel, "own-grave", dead="own-grave")
    channel.basic_publish("", "own-grave", b"x")
    for turn in (1, 2):
        get(channel, "own-grave").nack(requeue=False)
        letter = get(channel, "own-grave")
        assert deaths(letter) == [("own-grave", "rejected", turn)]
        assert not letter.redelivered
        letter.nack()
    bodies(channel, "own-grave")


def test_a_dead_letter_waits_until_its_full_home_takes_it(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare(channel, "refusing", x_max_length=1, x_overflow="reject-publish")
    declare(channel, "waiting", dead="refusing")
    channel.basic_publish("", "refusing", b"there")
    channel.basic_publish("", "waiting", b"dead")
    get(channel, "waiting").nack(requeue=False)
    until(lambda: counts(connection, "waiting")["dying"] == 1, "it waits")
    assert bodies(channel, "refusing") == [b"there"]
    until(lambda: ready(channel, "refusing") == 1, "it has arrived")
    assert bodies(channel, "refusing") == [b"dead"]
    until(lambda: counts(connection, "waiting")["valid"] == 0, "it has left")


def test_dead_letters_keep_their_priority_and_go_to_an_alternate_exchange(channel: shardmq.Channel) -> None:
    channel.exchange_declare("unrouted", "fanout")
    channel.exchange_declare("letters", "direct", arguments={"alternate-exchange": "unrouted"})
    declare(channel, "ranked.dead", x_max_priority=9)
    channel.queue_bind("ranked.dead", "unrouted")
    channel.queue_declare("rank-and-file", durable=True, arguments={"x-dead-letter-exchange": "letters"})
    for priority in (1, 5, 3):
        channel.basic_publish("", "rank-and-file", b"%d" % priority, ranked(priority))
    for _ in range(3):
        get(channel, "rank-and-file").nack(requeue=False)
    until(lambda: ready(channel, "ranked.dead") == 3, "all are dead")
    letters = take(channel, "ranked.dead")
    assert [letter.body for letter in letters] == [b"5", b"3", b"1"]
    assert (letters[0].exchange, letters[0].routing_key) == ("letters", "rank-and-file")


def test_a_headers_exchange_sorts_dead_letters_by_how_they_died(channel: shardmq.Channel) -> None:
    channel.exchange_declare("coroner", "headers")
    for reason in ("rejected", "expired"):
        declare(channel, f"died.{reason}")
        wish = {"x-match": "all-with-x", "x-first-death-reason": reason}
        channel.queue_bind(f"died.{reason}", "coroner", "", wish)
    channel.queue_declare("patients", durable=True, arguments={"x-dead-letter-exchange": "coroner"})
    channel.basic_publish("", "patients", b"rejected")
    get(channel, "patients").nack(requeue=False)
    channel.basic_publish("", "patients", b"expired", shardmq.Properties(expiration="0"))
    for reason in ("rejected", "expired"):
        until(lambda reason=reason: ready(channel, f"died.{reason}") == 1, reason)  # type: ignore[misc]
        assert bodies(channel, f"died.{reason}") == [reason.encode()]


def test_of_two_queues_one_may_refuse_and_the_publisher_hears_of_it(channel: shardmq.Channel) -> None:
    declare(channel, "strict", x_max_length=1, x_overflow="reject-publish")
    declare(channel, "lenient")
    channel.exchange_declare("both", "fanout")
    for queue in ("strict", "lenient"):
        channel.queue_bind(queue, "both")
    channel.basic_publish("both", "", b"1")
    with pytest.raises(errors.PublishRefused, match="full"):
        channel.basic_publish("both", "", b"2", mandatory=True)
    assert (bodies(channel, "strict"), bodies(channel, "lenient")) == ([b"1"], [b"1", b"2"])


def test_getting_and_declaring_keep_a_queue_from_expiring_and_publishing_does_not(
    channel: shardmq.Channel,
) -> None:
    terms = {"x-expires": 1500}
    for queue in ("got", "declared", "only-fed"):
        channel.queue_declare(queue, arguments=terms)

    def fed_in_vain() -> bool:
        channel.basic_get("got")
        channel.queue_declare("declared", arguments=terms)
        try:
            channel.basic_publish("", "only-fed", b"x", mandatory=True)
        except errors.Unroutable:
            return True
        except errors.PublishRefused as refused:
            assert "is being deleted" in refused.text
        return False

    until(fed_in_vain, "it went though it was published to")
    assert not is_gone(channel, "got")
    assert not is_gone(channel, "declared")
