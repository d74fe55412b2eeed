"""Policies on running queues: what they change takes effect when the request is answered, and goes with them again."""

from typing import Any

import pytest

import shardmq
from shardmq import errors
from tests.conftest import Broker, StartBroker

from .combined import deaths, get
from .traffic import bodies, publish_all, take, until


def row(connection: shardmq.Connection, name: str, noun: str = "queues") -> dict[str, Any]:
    return next(each for each in connection.topology(noun) if each["name"] == name)


def put(connection: shardmq.Connection, name: str, pattern: str, priority: int = 0, **definition: Any) -> None:
    settings = {key.replace("_", "-"): value for key, value in definition.items()}
    connection.policy_put("/", name, {"pattern": pattern, "definition": settings, "priority": priority})


def test_a_length_limit_comes_and_goes_without_losing_order_or_messages(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, [b"%d" % number for number in range(10)])
    held = channel.basic_get(queue)
    assert held is not None
    put(connection, "short", f"^{queue}$", max_length=5)
    found = row(connection, queue)
    assert (found["ready"], found["unacked"]) == (5, 1), "what is over the limit has gone with the answer"
    assert (found["policy"], found["effective_policy_definition"]) == ("short", {"max-length": 5})
    publish_all(channel, queue, [b"10"])
    assert row(connection, queue)["ready"] == 5
    connection.policy_delete("/", "short")
    held.nack(requeue=True)
    publish_all(channel, queue, [b"11", b"12"])
    assert bodies(channel, queue) == [b"0", b"6", b"7", b"8", b"9", b"10", b"11", b"12"]
    assert row(connection, queue)["policy"] is None


def test_of_equal_priorities_the_first_by_name_applies(connection: shardmq.Connection, queue: str) -> None:
    for name in ("b", "a", "c"):
        put(connection, name, f"^{queue}$", max_length=5)
    for name in ("a", "b", "c"):
        assert row(connection, queue)["policy"] == name
        connection.policy_delete("/", name)
    assert row(connection, queue)["policy"] is None


def test_a_running_consumer_goes_on_through_a_change(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, [b"%d" % number for number in range(40)])
    seen = []
    for message in channel.consume(queue, prefetch=3):
        seen.append(int(message.body))
        if len(seen) == 10:
            put(connection, "counted", f"^{queue}$", delivery_limit=5, max_length_bytes=1 << 20)
        if len(seen) == 20:
            connection.policy_delete("/", "counted")
        message.ack()
        if len(seen) == 40:
            break
    assert seen == list(range(40))
    until(lambda: row(connection, queue)["messages"] == 0, "all are acknowledged")


def test_dead_letters_go_where_the_policy_says_until_it_is_gone(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    channel.queue_declare(f"{queue}.dead")
    put(connection, "dying", f"^{queue}$", dead_letter_exchange="", dead_letter_routing_key=f"{queue}.dead")
    publish_all(channel, queue, [b"a"])
    get(channel, queue).reject()
    until(lambda: row(connection, f"{queue}.dead")["ready"] == 1, "it is dead")
    (letter,) = take(channel, f"{queue}.dead")
    assert deaths(letter) == [(queue, "rejected", 1)]
    put(connection, "dying", f"^{queue}$", message_ttl=0, dead_letter_exchange="amq.fanout")
    channel.queue_bind(f"{queue}.dead", "amq.fanout", "")
    publish_all(channel, queue, [b"b"])
    until(lambda: row(connection, f"{queue}.dead")["ready"] == 1, "it has expired, and went another way")
    connection.policy_delete("/", "dying")
    publish_all(channel, queue, [b"c"])
    get(channel, queue).reject()
    until(lambda: row(connection, queue)["messages"] == 0, "it is dropped")
    assert [letter.body for letter in take(channel, f"{queue}.dead")] == [b"b"]


def test_a_time_to_live_counts_from_when_messages_came(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    publish_all(channel, queue, [b"old"])
    put(connection, "brief", f"^{queue}$", message_ttl=1)
    until(lambda: row(connection, queue)["ready"] == 0, "it has expired")
    connection.policy_delete("/", "brief")
    publish_all(channel, queue, [b"new"])
    assert bodies(channel, queue) == [b"new"]


def test_a_full_queue_refuses_as_its_policy_says(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    put(connection, "full", f"^{queue}$", max_length=1, overflow="reject-publish")
    channel.basic_publish("", queue, b"fits")
    with pytest.raises(errors.PublishRefused):
        channel.basic_publish("", queue, b"does not")
    connection.policy_delete("/", "full")
    channel.basic_publish("", queue, b"does now")
    assert bodies(channel, queue) == [b"fits", b"does now"]


def test_an_operator_policy_limits_what_arguments_and_policies_ask_for(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    connection.policy_put("/", "most", {"pattern": "^limited", "definition": {"max-length": 3}}, operator=True)
    put(connection, "more", "^limited", max_length=100)
    channel.queue_declare("limited", durable=True, arguments={"x-max-length": 50})
    publish_all(channel, "limited", [b"%d" % number for number in range(10)])
    assert bodies(channel, "limited") == [b"7", b"8", b"9"]
    found = row(connection, "limited")
    assert (found["policy"], found["operator_policy"], found["arguments"]) == ("more", "most", {"x-max-length": 50})
    (matched, operator) = connection.policy_match("/", "limited.too")
    assert (matched["name"], operator["name"], operator["operator"]) == ("more", "most", True)
    (changed,) = connection.policy_preview("/", "most", None, operator=True)
    assert changed["changes"] == {"x-max-length": [3, 50]}
    connection.policy_delete("/", "most", operator=True)
    connection.policy_delete("/", "more")
    channel.queue_delete("limited")


def test_unroutable_messages_go_to_the_alternate_exchange_of_a_policy(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str
) -> None:
    channel.exchange_declare("main", "direct")
    channel.queue_bind(queue, "amq.fanout", "")
    channel.basic_publish("main", "nowhere", b"lost")
    put(connection, "caught", "^main$", alternate_exchange="amq.fanout")
    channel.basic_publish("main", "nowhere", b"caught")
    assert row(connection, "main", "exchanges")["policy"] == "caught"
    connection.policy_delete("/", "caught")
    channel.basic_publish("main", "nowhere", b"lost again")
    assert bodies(channel, queue) == [b"caught"]
    channel.exchange_delete("main")


def test_a_queue_that_nobody_uses_expires_as_its_policy_says(
    connection: shardmq.Connection, channel: shardmq.Channel
) -> None:
    channel.queue_declare("unused", durable=True)
    put(connection, "expiring", "^unused$", expires=600_000)
    put(connection, "expiring", "^unused$", expires=1)
    until(lambda: all(each["name"] != "unused" for each in connection.topology("queues")), "it has expired")
    connection.policy_delete("/", "expiring")


def test_policies_are_for_policymakers(connection: shardmq.Connection, broker: Broker) -> None:
    connection.user_put("maker", "secret", tags=["policymaker"])
    connection.permission_put("maker", "/", ".*", ".*", ".*")
    connection.user_put("other", "secret", tags=["management"])
    connection.permission_put("other", "/", ".*", ".*", ".*")
    settings = {"pattern": "^nothing$", "definition": {"max-length": 1}}
    with shardmq.connect(f"shardmq://maker:secret@127.0.0.1:{broker.port}") as maker:
        maker.policy_put("/", "mine", settings)
        with pytest.raises(errors.AccessRefused):
            maker.policy_put("/", "mine", settings, operator=True)
        maker.policy_delete("/", "mine")
    with shardmq.connect(f"shardmq://other:secret@127.0.0.1:{broker.port}") as other:
        with pytest.raises(errors.AccessRefused):
            other.policy_put("/", "mine", settings)
        assert other.policy_match("/", "x") == []
    with pytest.raises(errors.InvalidRequest) as refused:
        connection.policy_put("/", "bad", {"pattern": "a", "definition": {"max-length": -1}})
    assert refused.value.text == "Validation failed\n\n-1 is not a valid maximum length\n"


def test_topic_permissions_say_which_routing_keys_a_user_may_use(
    connection: shardmq.Connection, channel: shardmq.Channel, queue: str, broker: Broker
) -> None:
    connection.user_put("topical", "secret")
    connection.permission_put("topical", "/", ".*", ".*", ".*")
    connection.topic_permission_put("topical", "/", "amq.topic", "^{username}[.]", "^open")
    with shardmq.connect(f"shardmq://topical:secret@127.0.0.1:{broker.port}") as theirs:
        channel = theirs.channel()
        channel.queue_bind(queue, "amq.topic", "open.#")
        with pytest.raises(errors.AccessRefused, match=r"access to topic 'secret\.#' in exchange 'amq"):
            channel.queue_bind(queue, "amq.topic", "secret.#")
        channel.basic_publish("amq.topic", "topical.a", b"")
        for key, cc in (("other.a", []), ("topical.a", ["other.a"])):
            with pytest.raises(errors.AccessRefused, match=r"access to topic 'other\.a'"):
                channel.basic_publish("amq.topic", key, b"", shardmq.Properties(headers={"CC": cc} if cc else None))
        publisher = channel.publisher()
        publisher.publish("amq.topic", "topical.b", b"")
        publisher.publish("amq.topic", "other.a", b"")
        with pytest.raises(errors.AccessRefused, match=r"access to topic 'other\.a'"):
            publisher.flush()
        channel.basic_publish("amq.direct", "other.a", b"")
        connection.topic_permission_delete("topical", "/", "amq.topic")
        channel.basic_publish("amq.topic", "other.a", b"")


def test_policies_and_what_they_give_queues_survive_a_restart(start_broker: StartBroker) -> None:
    broker = start_broker(shards=1)
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        channel.queue_declare("kept", durable=True)
        publish_all(channel, "kept", [b"1", b"2", b"3"])
        settings = {"max-length": 2, "dead-letter-exchange": "amq.fanout", "overflow": "reject-publish-dlx"}
        connection.policy_put("/", "short", {"pattern": "kept", "definition": settings})
        connection.topic_permission_put("guest", "/", "amq.topic", "a", "b")
        with pytest.raises(errors.PublishRefused):
            publish_all(channel, "kept", [b"4"])
        connection.policy_put("/", "most", {"pattern": "kept", "definition": {"expires": 99_000_000}}, operator=True)
    broker.restart()
    with shardmq.connect(broker.url) as connection, connection.channel() as channel:
        found = row(connection, "kept")
        assert (found["policy"], found["operator_policy"]) == ("short", "most")
        assert found["effective_policy_definition"] == {**settings, "expires": 99_000_000}
        channel.queue_declare("dead", durable=True)
        channel.queue_bind("dead", "amq.fanout", "")
        with pytest.raises(errors.PublishRefused):
            publish_all(channel, "kept", [b"5"])
        until(lambda: row(connection, "dead")["ready"] >= 1, "the limit holds, and what it refused is a dead letter")
        connection.policy_delete("/", "short")
        publish_all(channel, "kept", [b"6"])
        assert bodies(channel, "kept") == [b"1", b"2", b"3", b"6"]
        (there,) = connection.topology("topic-permissions")
        assert (there["exchange"], there["write"], there["read"]) == ("amq.topic", "a", "b")
