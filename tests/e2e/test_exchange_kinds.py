"""What exchanges do besides direct, fanout and topic: headers, hashing, chains, alternates, lives of their own."""

from collections import Counter

import pytest

import shardmq
from shardmq import errors

from .traffic import bodies, publish_all


def declare_queues(channel: shardmq.Channel, *names: str) -> None:
    for name in names:
        channel.queue_declare(name, durable=True)


def headers(**table: object) -> shardmq.Properties:
    return shardmq.Properties(headers=dict(table))


@pytest.mark.parametrize(
    ("how", "sent", "arrives"),
    [
        ("all", {"format": "pdf", "pages": 3}, True),
        ("all", {"format": "pdf", "pages": 3, "more": 1}, True),
        ("all", {"format": "pdf"}, False),
        ("all", {"format": "pdf", "pages": "3"}, False),
        ("any", {"format": "pdf"}, True),
        ("any", {"pages": 4, "format": "txt"}, False),
        ("any", {"x-from": "press"}, False),
        ("all-with-x", {"format": "pdf", "pages": 3, "x-from": "press"}, True),
        ("all-with-x", {"format": "pdf", "pages": 3}, False),
        ("any-with-x", {"x-from": "press"}, True),
    ],
)
def test_a_headers_exchange_compares_headers(
    channel: shardmq.Channel, queue: str, how: str, sent: dict[str, object], arrives: bool
) -> None:
    channel.queue_bind(queue, "amq.headers", "", {"x-match": how, "format": "pdf", "pages": 3, "x-from": "press"})
    channel.basic_publish("amq.headers", "whatever", b"report", shardmq.Properties(headers=sent))
    assert bodies(channel, queue) == ([b"report"] if arrives else [])


def test_messages_of_one_batch_go_where_each_ones_headers_say(channel: shardmq.Channel) -> None:
    declare_queues(channel, "batch.red", "batch.blue")
    for color in ("red", "blue"):
        channel.queue_bind(f"batch.{color}", "amq.headers", "", {"batch-color": color})
    with channel.publisher() as publisher:
        for number in range(100):
            color = "red" if number % 3 else "blue"
            publisher.publish("amq.headers", "", b"%d" % number, headers(**{"batch-color": color}))
    assert bodies(channel, "batch.blue") == [b"%d" % number for number in range(0, 100, 3)]
    assert bodies(channel, "batch.red") == [b"%d" % number for number in range(100) if number % 3]


def test_what_an_exchange_routes_nowhere_goes_to_its_alternate(channel: shardmq.Channel) -> None:
    declare_queues(channel, "known", "unknown")
    channel.exchange_declare("rest", "fanout")
    channel.exchange_declare("orders", "direct", arguments={"alternate-exchange": "rest"})
    channel.queue_bind("known", "orders", "k")
    channel.queue_bind("unknown", "rest")
    publish_all(channel, "k", [b"1"], exchange="orders")
    publish_all(channel, "other", [b"2"], exchange="orders")
    assert (bodies(channel, "known"), bodies(channel, "unknown")) == ([b"1"], [b"2"])


def test_alternates_in_a_circle_end(channel: shardmq.Channel) -> None:
    channel.exchange_declare("left", "direct", arguments={"alternate-exchange": "right"})
    channel.exchange_declare("right", "direct", arguments={"alternate-exchange": "left"})
    with pytest.raises(errors.Unroutable):
        channel.basic_publish("left", "nobody", b"lost", mandatory=True)


def test_exchanges_bound_to_each_other_pass_a_message_to_every_queue_once(channel: shardmq.Channel, queue: str) -> None:
    for name in ("ring.a", "ring.b", "ring.c"):
        channel.exchange_declare(name, "topic")
    channel.exchange_bind("ring.b", "ring.a", "#")
    channel.exchange_bind("ring.c", "ring.b", "#")
    channel.exchange_bind("ring.a", "ring.c", "#")
    channel.queue_bind(queue, "ring.c", "x.*")
    channel.queue_bind(queue, "ring.a", "x.*")
    publish_all(channel, "x.y", [b"once"], exchange="ring.a")
    assert bodies(channel, queue) == [b"once"]
    channel.exchange_unbind("ring.b", "ring.a", "#")
    channel.queue_unbind(queue, "ring.a", "x.*")
    publish_all(channel, "x.y", [b"nowhere"], exchange="ring.a")
    assert bodies(channel, queue) == []


def test_nobody_publishes_to_an_internal_exchange_but_other_exchanges(channel: shardmq.Channel, queue: str) -> None:
    channel.exchange_declare("inner", "fanout", internal=True)
    channel.exchange_declare("outer", "fanout")
    channel.exchange_bind("inner", "outer")
    channel.queue_bind(queue, "inner")
    with pytest.raises(errors.AccessRefused, match="internal exchange 'inner'"):
        channel.basic_publish("inner", "", b"no")
    channel.basic_publish("outer", "", b"yes")
    assert bodies(channel, queue) == [b"yes"]


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: shardmq.Channel) -> None:
    declare_queues(channel, "short.a", "short.b")
    channel.exchange_declare("short", "direct", auto_delete=True)
    channel.queue_bind("short.a", "short", "k")
    channel.queue_bind("short.b", "short", "k")
    channel.queue_unbind("short.a", "short", "k")
    channel.exchange_declare("short", passive=True)
    channel.queue_delete("short.b")
    with pytest.raises(errors.NotFound):
        channel.exchange_declare("short", passive=True)


def test_an_exchange_that_is_used_is_not_deleted_if_unused(channel: shardmq.Channel, queue: str) -> None:
    channel.exchange_declare("busy", "fanout")
    channel.queue_bind(queue, "busy")
    with pytest.raises(errors.PreconditionFailed, match="in use"):
        channel.exchange_delete("busy", if_unused=True)
    channel.queue_unbind(queue, "busy")
    channel.exchange_delete("busy", if_unused=True)


def test_cc_and_bcc_are_more_routing_keys_and_bcc_is_not_seen(channel: shardmq.Channel) -> None:
    declare_queues(channel, "to", "cc", "bcc")
    channel.basic_publish("", "to", b"letter", headers(CC=["cc"], BCC=["bcc"], kept=1))
    for name in ("to", "cc", "bcc"):
        message = channel.basic_get(name, auto_ack=True)
        assert message is not None
        assert (message.body, message.routing_key) == (b"letter", "to")
        assert message.properties is not None
        assert message.properties.headers == {"CC": ["cc"], "kept": 1}


@pytest.mark.parametrize("wrong", ["cc", 1, {"a": 1}])
def test_a_cc_that_is_no_list_of_keys_is_refused(channel: shardmq.Channel, queue: str, wrong: object) -> None:
    with pytest.raises(errors.PreconditionFailed, match="CC"):
        channel.basic_publish("", queue, b"", headers(CC=wrong))
    assert bodies(channel, queue) == []


def test_a_hashing_exchange_spreads_keys_by_weight_and_keeps_each_in_its_place(channel: shardmq.Channel) -> None:
    names = {"hash.a": "10", "hash.b": "10", "hash.c": "20"}
    declare_queues(channel, *names)
    channel.exchange_declare("hashed", "x-consistent-hash")
    for name, weight in names.items():
        channel.queue_bind(name, "hashed", weight)
    for _ in range(2):
        with channel.publisher() as publisher:
            for number in range(2000):
                publisher.publish("hashed", f"customer-{number}", b"%d" % number)
    found = {name: Counter(bodies(channel, name)) for name in names}
    assert sum(sum(each.values()) for each in found.values()) == 4000
    assert all(set(each.values()) == {2} for each in found.values())
    assert 0.35 < len(found["hash.c"]) / 2000 < 0.65


def test_a_hashing_exchange_can_hash_a_header(channel: shardmq.Channel) -> None:
    declare_queues(channel, "by.a", "by.b")
    channel.exchange_declare("by-header", "x-consistent-hash", arguments={"hash-header": "customer"})
    for name in ("by.a", "by.b"):
        channel.queue_bind(name, "by-header", "1")
    for number in range(60):
        channel.basic_publish("by-header", f"{number}", b"%d" % (number % 6), headers(customer=f"c{number % 6}"))
    found = [set(bodies(channel, name)) for name in ("by.a", "by.b")]
    assert not found[0] & found[1]
    assert len(found[0] | found[1]) == 6
