"""What users see of the SDK: completion, constructors, reprs, and that both fronts offer the same."""

import inspect
import re
from typing import Any

import pytest

import shardmq
from shardmq import aio
from shardmq.cmd.run.broker import Broker

VERBS = {
    *("basic_ack", "basic_cancel", "basic_consume", "basic_get", "basic_nack", "basic_publish", "basic_qos"),
    *(
        "basic_recover",
        "basic_renew",
        "call",
        "close",
        "consume",
        "consume_batches",
        "flush",
        "is_open",
        "number",
        "pull",
        "reader",
        "group_commit",
        "group_consumer",
        "group_delete",
        "group_offsets",
        "group_reset",
    ),
    *("exchange_bind", "exchange_declare", "exchange_delete", "exchange_unbind", "publisher", "queue_bind"),
    *("queue_declare", "queue_delete", "queue_peek", "queue_places", "queue_purge", "queue_read", "queue_reserve"),
    *(
        "deaths_search",
        "messages_search",
        "queue_slices",
        "queue_unbind",
        "reservation_end",
        "topic_declare",
        "topic_delete",
        "topic_extend",
        "topic_info",
    ),
    *("transaction", "transaction_abort"),
}
OF_A_CONNECTION = {
    *("backup_begin", "backup_look", "blocked", "channel", "close", "connection_expel", "definitions_export"),
    *(
        "definitions_import",
        "findings_tell",
        "is_open",
        "is_recovering",
        "limits_put",
        "on_blocked",
        "on_confirm",
        "on_lost",
    ),
    *("on_recovery", "on_return", "on_unblocked", "permission_delete", "permission_put", "server_properties", "status"),
    *("parameter_delete", "parameter_put", "shovels_report"),
    *("policy_delete", "policy_match", "policy_preview", "policy_put", "topic_permission_delete"),
    *(
        "stats_get",
        "stats_list",
        "stats_overview",
        "timeout",
        "tracing_put",
        "topic_permission_put",
        "topology",
        "user_delete",
    ),
    *("user_put", "vhost_delete", "vhost_put", "watermarks_put"),
    *("host_drain", "shard_transfer", "shard_move"),
}
OF_A_PUBLISHER = {"close", "flush", "publish", "publish_keyed", "publish_many", "unconfirmed"}
OF_A_MESSAGE = {
    *(
        "ack",
        "body",
        "consumer_tag",
        "deliveries",
        "delivery_tag",
        "exchange",
        "message_id",
        "nack",
        "offset",
        "partition",
        "persistent",
        "reject",
    ),
    *("position", "properties", "queue", "redelivered", "renew", "routing_key", "timestamp_ms"),
}
NAMES = ("Channel", "Connection", "Publisher", "Transaction")

DIFFERENT = {
    ("Channel", "basic_consume"): "handlers may be coroutine functions, and run side by side",
    ("Channel", "consume"): "generators end differently",
    ("Channel", "consume_batches"): "generators end differently",
    ("Channel", "group_consumer"): "may be entered with async with",
    ("Channel", "reader"): "generators end differently",
    ("Channel", "transaction"): "may be entered with async with",
    ("Connection", "channel"): "may be entered with async with",
}
"""Methods whose texts say something of asyncio, and why."""


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_completion_shows_what_users_use_and_nothing_else(channel: shardmq.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_publish("", queue, b"1")
    message = channel.basic_get(queue)
    assert message is not None
    assert public(channel) == VERBS
    assert public(message) == OF_A_MESSAGE


@pytest.mark.parametrize("front", [shardmq, aio], ids=["sync", "aio"])
def test_both_fronts_have_the_same_names(front: Any) -> None:
    assert public(front.Channel) == VERBS
    assert public(front.Connection) | {"timeout"} == OF_A_CONNECTION
    assert public(front.Publisher) == OF_A_PUBLISHER


@pytest.mark.parametrize("name", NAMES)
def test_both_fronts_have_the_same_signatures_and_texts(name: str) -> None:
    ours, theirs = getattr(shardmq, name), getattr(aio, name)
    assert public(ours) == public(theirs)
    for verb in public(ours):
        one, other = inspect.getattr_static(ours, verb), inspect.getattr_static(theirs, verb)
        if isinstance(one, property):
            assert one.__doc__ == other.__doc__, verb
            continue
        if (name, verb) in DIFFERENT or not callable(one):
            continue
        assert inspect.getdoc(one) == inspect.getdoc(other), verb
        signatures = [str(inspect.signature(front)).replace(".aio.", ".sync.") for front in (one, other)]
        assert signatures[0] == signatures[1], verb
    for place, verb in DIFFERENT:
        if place == name:
            one, other = inspect.signature(getattr(ours, verb)), inspect.signature(getattr(theirs, verb))
            assert [*one.parameters] == [known for known in other.parameters if known != "concurrency"]


@pytest.mark.parametrize("front", [shardmq, aio], ids=["sync", "aio"])
@pytest.mark.parametrize("name", NAMES)
def test_constructors_say_whose_method_to_call(front: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name.lower()} is (opened|made|begun) by (shardmq\.)?(aio\.)?\w+"):
        getattr(front, name)()


def test_a_message_shows_its_queue_key_size_beginning_and_whether_it_came_before(channel: shardmq.Channel) -> None:
    queue = channel.queue_declare(exclusive=True).queue
    channel.basic_publish("", queue, b"hello " * 100)
    first = next(channel.consume(queue))
    assert repr(first) == (
        f"<Message 1 from queue '{queue}', routing key '{queue}', 600 bytes: {b'hello ' * 5 + b'he...'!r}>"
    )
    first.nack()
    again = channel.basic_get(queue)
    assert again is not None
    assert repr(again).endswith(", redelivered>")
    assert again.queue == queue
    again.nack()
    [peeked] = channel.queue_peek(queue)
    assert peeked.queue == queue
    [batch] = channel.consume_batches(queue, inactivity_timeout=2.0)
    assert re.fullmatch(rf"<Batch of 1 messages from queue '{queue}', .*, redelivered>", repr(batch))


def test_a_clean_close_is_no_lost_connection(broker: Broker) -> None:
    lost: list[object] = []
    with shardmq.connect(broker.url) as connection:
        connection.on_lost(lost.append)
    assert lost == []
