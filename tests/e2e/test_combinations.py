"""Features together: each is plain alone, and RabbitMQ's users combine them."""

from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker
from shardmq.message.record import pack
from shardmq.message.record_batch import PERSISTENT
from shardmq.protocol.native.operations.basic import BasicConfirm, BasicPublish
from tests.gateway.rawclient import RawClient

from .traffic import bodies, counts, numbers, publish_all, take, until


def declare(channel: shardmq.Channel, queue: str, dead: str | None = None, **arguments: Any) -> None:
    """A durable queue; arguments as x_max_length=3; what dies in it goes to the queue `dead`."""
    terms = {name.replace("_", "-"): value for name, value in arguments.items()}
    if dead is not None:
        terms |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.queue_declare(queue, durable=True, arguments=terms)


def ranked(priority: int) -> shardmq.Properties:
    return shardmq.Properties(priority=priority)


def get(channel: shardmq.Channel, queue: str) -> shardmq.Message:
    """The next message, unacked, when it is there."""
    message = until(lambda: channel.basic_get(queue), f"a message is in {queue}")
    assert isinstance(message, shardmq.Message)
    return message


def ready(channel: shardmq.Channel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).messages


def deaths(message: shardmq.Message) -> list[tuple[str, str, int]]:
    """Where, why and how often it died, most recent first."""
    return [
        (death["queue"], death["reason"], death["count"]) for death in (message.properties.headers or {})["x-death"]
    ]


def is_gone(channel: shardmq.Channel, queue: str) -> bool:
    try:
        channel.queue_declare(queue, passive=True)
    except errors.NotFound:
        return True
    return False


# --- dead letters, and the bounds of where they go -------------------------------------------------------------------


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


# --- limits, priorities, delays --------------------------------------------------------------------------------------


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


# --- purge and delete, while things are under way --------------------------------------------------------------------


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


# --- exchanges -------------------------------------------------------------------------------------------------------


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
    for batch in channel.consume_batches(queue, inactivity_timeout=0.3):
        stored += batch.bodies
        batch.ack()
    return stored


# --- consumers -------------------------------------------------------------------------------------------------------


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


# --- sending again ----------------------------------------------------------------------------------------------------


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
