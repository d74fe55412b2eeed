"""Where messages go: exchanges of every type, bindings made and removed, declaring twice."""

import pytest

import shardmq
from shardmq import errors

from .traffic import bodies


def declare_queues(channel: shardmq.Channel, *names: str) -> None:
    for name in names:
        channel.queue_declare(name)


def bindings(connection: shardmq.Connection, exchange: str) -> set[tuple[str, str]]:
    return {
        (table["destination"], table["routing_key"])
        for table in connection.topology("bindings")
        if table["source"] == exchange
    }


def test_the_default_exchange_routes_to_the_queue_that_the_key_names(channel: shardmq.Channel) -> None:
    declare_queues(channel, "default.a", "default.b")
    channel.basic_publish("", "default.a", b"1")
    channel.basic_publish("", "default.nowhere", b"2")
    assert (bodies(channel, "default.a"), bodies(channel, "default.b")) == ([b"1"], [])


@pytest.mark.parametrize("exchange", ["amq.direct", "mine"])
def test_a_direct_exchange_routes_by_the_whole_key_to_every_queue_bound_with_it(
    channel: shardmq.Channel, exchange: str
) -> None:
    if exchange == "mine":
        channel.exchange_declare(exchange, "direct")
    red, both = f"to.{exchange}.red", f"to.{exchange}.both"
    declare_queues(channel, red, both)
    for queue, key in ((red, "red"), (both, "red"), (both, "blue"), (both, "blue")):
        channel.queue_bind(queue, exchange, key)
    for key in ("red", "blue", "red.x", "*", ""):
        channel.basic_publish(exchange, key, key.encode())
    assert bodies(channel, red) == [b"red"]
    assert bodies(channel, both) == [b"red", b"blue"]


@pytest.mark.parametrize("exchange", ["amq.fanout", "everybody"])
def test_a_fanout_exchange_routes_to_every_queue_once_whatever_the_key(channel: shardmq.Channel, exchange: str) -> None:
    if exchange == "everybody":
        channel.exchange_declare(exchange, "fanout")
    queues = [f"to.{exchange}.{number}" for number in range(8)]  # over all shards
    declare_queues(channel, *queues)
    for queue in queues:
        channel.queue_bind(queue, exchange)
        channel.queue_bind(queue, exchange, "again")
    channel.basic_publish(exchange, "again", b"1")
    channel.basic_publish(exchange, "other", b"2")
    assert [bodies(channel, queue) for queue in queues] == [[b"1", b"2"]] * 8


@pytest.mark.parametrize("exchange", ["amq.topic", "stocks"])
def test_a_topic_exchange_routes_by_patterns_and_once_where_several_match(
    channel: shardmq.Channel, exchange: str
) -> None:
    if exchange == "stocks":
        channel.exchange_declare(exchange, "topic")
    patterns = {
        "star": ["stock.*.usd"],
        "hash": ["stock.#"],
        "mixed": ["#.usd", "*.nyse.*"],
        "all": ["#"],
        "exact": ["stock.nyse.usd"],
    }
    for name, keys in patterns.items():
        channel.queue_declare(f"to.{exchange}.{name}")
        for key in keys:
            channel.queue_bind(f"to.{exchange}.{name}", exchange, key)
    for key in ("stock.nyse.usd", "stock", "usd", "stock.a.b.usd", "bond.nyse.eur"):
        channel.basic_publish(exchange, key, key.encode())
    got = {name: bodies(channel, f"to.{exchange}.{name}") for name in patterns}
    assert got == {
        "star": [b"stock.nyse.usd"],
        "hash": [b"stock.nyse.usd", b"stock", b"stock.a.b.usd"],
        "mixed": [b"stock.nyse.usd", b"usd", b"stock.a.b.usd", b"bond.nyse.eur"],
        "all": [b"stock.nyse.usd", b"stock", b"usd", b"stock.a.b.usd", b"bond.nyse.eur"],
        "exact": [b"stock.nyse.usd"],
    }


def test_declaring_the_same_again_changes_nothing(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    channel.exchange_declare("twice", "topic", durable=True)
    channel.queue_declare("twice", durable=True)
    channel.queue_bind("twice", "twice", "#")
    channel.basic_publish("twice", "k", b"kept")
    channel.exchange_declare("twice", "topic", durable=True)
    assert channel.queue_declare("twice", durable=True) == shardmq.QueueDeclared("twice", 1, 0)
    channel.queue_bind("twice", "twice", "#")
    assert bindings(connection, "twice") == {("twice", "#")}
    assert bodies(channel, "twice") == [b"kept"]
    for name, kind in (("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic")):
        channel.exchange_declare(name, kind, durable=True)


def test_declaring_it_otherwise_is_refused_with_the_difference_and_the_channel_lives_on(
    channel: shardmq.Channel,
) -> None:
    channel.exchange_declare("settled", "direct", durable=True)
    channel.queue_declare("settled", durable=True)
    with pytest.raises(errors.PreconditionFailed, match=r"type.*(direct.*fanout|fanout.*direct)"):
        channel.exchange_declare("settled", "fanout", durable=True)
    with pytest.raises(errors.PreconditionFailed, match="durable"):
        channel.exchange_declare("settled", "direct")
    with pytest.raises(errors.PreconditionFailed, match="durable"):
        channel.queue_declare("settled")
    with pytest.raises(errors.PreconditionFailed, match="type"):
        channel.exchange_declare("amq.topic", "direct", durable=True)
    channel.basic_publish("", "settled", b"1")
    assert bodies(channel, "settled") == [b"1"]


def test_an_unbound_queue_gets_nothing_more_and_keeps_its_other_bindings(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare_queues(channel, "unbinding")
    channel.exchange_declare("unbinding", "topic")
    for key in ("a.*", "b.*"):
        channel.queue_bind("unbinding", "unbinding", key)
    channel.basic_publish("unbinding", "a.1", b"a1")
    channel.queue_unbind("unbinding", "unbinding", "a.*")
    channel.queue_unbind("unbinding", "unbinding", "a.*")
    for key in ("a.2", "b.2"):
        channel.basic_publish("unbinding", key, key.encode())
    assert bodies(channel, "unbinding") == [b"a1", b"b.2"]
    assert bindings(connection, "unbinding") == {("unbinding", "b.*")}


def test_a_deleted_exchange_takes_its_bindings_along_and_publishing_to_it_is_not_found(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    declare_queues(channel, "survivor")
    channel.exchange_declare("doomed", "fanout")
    channel.queue_bind("survivor", "doomed")
    channel.basic_publish("doomed", "", b"before")
    channel.exchange_delete("doomed")
    with pytest.raises(errors.NotFound, match="doomed"):
        channel.basic_publish("doomed", "", b"without")
    channel.exchange_declare("doomed", "fanout")
    assert bindings(connection, "doomed") == set()
    channel.basic_publish("doomed", "", b"unbound")
    assert bodies(channel, "survivor") == [b"before"]


def test_a_deleted_queue_takes_its_bindings_and_messages_along(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.exchange_declare("leaving", "fanout")
    declare_queues(channel, "leaver", "stayer")
    for queue in ("leaver", "stayer"):
        channel.queue_bind(queue, "leaving")
    channel.basic_publish("leaving", "", b"1")
    assert channel.queue_delete("leaver") == 1
    assert bindings(connection, "leaving") == {("stayer", "")}
    channel.basic_publish("leaving", "", b"2")
    channel.basic_publish("", "leaver", b"to nobody")
    with pytest.raises(errors.NotFound, match="leaver"):
        channel.basic_get("leaver")
    assert channel.queue_declare("leaver").messages == 0
    channel.basic_publish("leaving", "", b"3")
    assert bodies(channel, "leaver") == []
    assert bodies(channel, "stayer") == [b"1", b"2", b"3"]


def test_what_is_not_there_is_not_found_and_what_is_not_allowed_says_so(channel: shardmq.Channel) -> None:
    declare_queues(channel, "real")
    for request in (
        lambda: channel.queue_bind("real", "unreal", "k"),
        lambda: channel.queue_bind("unreal", "amq.topic", "k"),
        lambda: channel.queue_purge("unreal"),
        lambda: channel.queue_delete("unreal"),
        lambda: channel.exchange_delete("unreal"),
        lambda: channel.consume("unreal"),
        lambda: channel.basic_get("unreal"),
    ):
        with pytest.raises(errors.NotFound, match="unreal"):
            request()
    for forbidden in (
        lambda: channel.exchange_declare("amq.mine", "direct"),
        lambda: channel.queue_declare("amq.mine"),
    ):
        with pytest.raises(errors.AccessRefused, match=r"amq\."):
            forbidden()
    with pytest.raises(errors.AccessRefused, match=r"amq\.topic"):
        channel.exchange_delete("amq.topic")
    with pytest.raises(errors.RequestError, match="magic"):
        channel.exchange_declare("magical", "magic")
    with pytest.raises(errors.PreconditionFailed, match="x-max-length"):
        channel.queue_declare("limited", arguments={"x-max-length": "1"})
    assert channel.is_open


def test_one_message_to_many_queues_is_confirmed_when_all_have_it(channel: shardmq.Channel) -> None:
    queues = [f"many.{number}" for number in range(100)]
    declare_queues(channel, *queues)
    for queue in queues:
        channel.queue_bind(queue, "amq.topic", "many.#")
    channel.basic_publish("amq.topic", "many.copies", b"x")
    assert {channel.queue_declare(queue).messages for queue in queues} == {1}
