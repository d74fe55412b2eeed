"""Which policies apply to what, and what follows: RabbitMQ's rules, and ours where it has none."""

from typing import Any

import pytest

from shardmq.errors import InvalidRequest
from shardmq.topology.changes import ExchangeAdded, PolicyPut, PolicyRemoved, QueueAdded, VhostPut
from shardmq.topology.entities import Exchange, Policy, Queue, Vhost
from shardmq.topology.policies.keys import check_policy, merged
from shardmq.topology.policies.matching import Policies
from shardmq.topology.policies.preview import matching, preview
from shardmq.topology.topology import Topology


def policy(name: str, pattern: str, settings: dict[str, Any], **more: Any) -> Policy:
    return Policy("/", name, pattern, settings, **more)


def queue(name: str, **arguments: Any) -> Queue:
    return Queue("/", name, 1, 0, True, {key.replace("_", "-"): value for key, value in arguments.items()})


def applied(thing: Queue | Exchange, *policies: Policy) -> tuple[str | None, str | None]:
    found = Policies(policies).applied(thing)
    return found.policy and found.policy.name, found.operator and found.operator.name


def test_the_highest_priority_applies_and_of_equals_the_first_by_name() -> None:
    low, high = policy("a", "q", {"expires": 1}), policy("b", "q", {"expires": 2}, priority=1)
    assert applied(queue("q"), low, high) == ("b", None)
    assert applied(queue("q"), policy("z", "q", {"expires": 1}), policy("b", "q", {"expires": 2})) == ("b", None)


def test_a_pattern_is_found_anywhere_in_a_name_and_only_in_its_virtual_host() -> None:
    assert applied(queue("my.orders.q"), policy("p", "orders", {"expires": 1})) == ("p", None)
    assert applied(queue("my.orders.q"), policy("p", "^orders", {"expires": 1})) == (None, None)
    elsewhere = Queue("shop", "orders", 2, 0)
    assert applied(elsewhere, policy("p", "orders", {"expires": 1})) == (None, None)


@pytest.mark.parametrize(
    ("apply_to", "names"),
    [
        ("all", "classic quorum stream exchange"),
        ("queues", "classic quorum stream"),
        ("classic_queues", "classic"),
        ("quorum_queues", "quorum"),
        ("streams", "stream"),
        ("exchanges", "exchange"),
    ],
)
def test_a_policy_applies_to_what_it_names(apply_to: str, names: str) -> None:
    things: dict[str, Queue | Exchange] = {
        "classic": queue("x"),
        "quorum": queue("x", x_queue_type="quorum"),
        "stream": queue("x", x_queue_type="stream"),
        "exchange": Exchange("/", "x", "topic"),
    }
    put = policy("p", "x", {"max-length-bytes": 5}, apply_to=apply_to)
    assert [name for name, thing in things.items() if applied(thing, put)[0]] == names.split()


def test_a_policy_with_a_setting_that_means_nothing_for_a_type_of_queue_is_not_its_policy() -> None:
    aged, short = policy("aged", "x", {"max-age": "1h"}, priority=1), policy("short", "x", {"max-length": 5})
    assert applied(queue("x"), aged, short) == ("short", None)
    assert applied(queue("x", x_queue_type="stream"), aged, short) == ("aged", None)
    assert applied(Exchange("/", "x", "topic"), aged, short) == ("aged", None)


def test_arguments_and_policies_meet_as_in_rabbitmq() -> None:
    settings = {"message-ttl": 50, "expires": 500, "max-length": 5, "overflow": "reject-publish"}
    settings |= {"dead-letter-exchange": "policy", "dead-letter-routing-key": "policy"}
    given = Policies([policy("p", "", settings)])
    own = {"x-message-ttl": 40, "x-expires": 600, "x-overflow": "drop-head", "x-dead-letter-exchange": "own"}
    found = given.arguments(Queue("/", "q", 1, 0, True, own))
    assert found == {
        "x-message-ttl": 40,
        "x-expires": 500,
        "x-max-length": 5,
        "x-overflow": "drop-head",
        "x-dead-letter-exchange": "own",
        "x-dead-letter-routing-key": "policy",
    }
    stream = Queue("/", "s", 2, 0, True, {"x-queue-type": "stream", "x-max-age": "1h", "x-max-length-bytes": 10})
    of_streams = Policies([policy("p", "", {"max-age": "2h", "max-length-bytes": 20})])
    assert of_streams.overlay(stream) == {"x-max-age": "2h", "x-max-length-bytes": 20}, "of streams, the policy counts"


def test_operator_policies_limit_policies() -> None:
    user, operator = {"max-length": 10, "message-ttl": 5, "overflow": "drop-head"}, {"max-length": 7, "message-ttl": 9}
    assert merged(user, operator) == {"max-length": 7, "message-ttl": 5, "overflow": "drop-head"}
    assert merged(user, {"overflow": "reject-publish"})["overflow"] == "reject-publish"
    put = [policy("p", "q", user), policy("o", "q", operator, is_operator=True)]
    assert applied(queue("q"), *put) == ("p", "o")
    assert Policies(put).overlay(queue("q", x_max_length=8)) == {
        "x-max-length": 7,
        "x-message-ttl": 5,
        "x-overflow": "drop-head",
    }


def test_an_alternate_exchange_of_a_policy_is_used_where_none_was_declared() -> None:
    given = Policies([policy("p", "", {"alternate-exchange": "lost"})])
    assert given.alternate(Exchange("/", "x", "topic")) == "lost"
    assert given.alternate(Exchange("/", "x", "topic", True, {"alternate-exchange": "own"})) == "own"


@pytest.mark.parametrize(
    ("pattern", "settings", "apply_to", "why"),
    [
        ("(", {"max-length": 1}, "all", 'pattern should be regular expression but is invalid: {"missing )",1}'),
        ("a", {}, "all", "no policy provided"),
        ("a", {"max-length": -1}, "all", "-1 is not a valid maximum length"),
        ("a", {"max-length": "x"}, "all", '<<"x">> is not a valid maximum length'),
        ("a", {"max-length": True}, "all", "true is not a valid maximum length"),
        ("a", {"message-ttl": 1.5}, "all", "1.5 is not a valid message TTL"),
        ("a", {"expires": 0}, "all", "0 is not a valid queue expiry"),
        ("a", {"overflow": {"a": 1}}, "all", '#{<<"a">> => 1} is not a valid overflow value'),
        ("a", {"overflow": [1, "b"]}, "all", '[1,<<"b">>] is not a valid overflow value'),
        ("a", {"max-age": "5x"}, "all", '<<"5x">> is not a valid max age'),
        ("a", {"dead-letter-exchange": 5}, "all", "5 is not a valid dead letter exchange name"),
        ("a", {"nope": "x", "max-length": 1}, "all", '[{<<"nope">>,<<"x">>}] are not recognised policy settings'),
        ("a", {"max-priority": 3}, "all", '[{<<"max-priority">>,3}] are not recognised policy settings'),
    ],
)
def test_refusals_have_the_words_of_rabbitmq(pattern: str, settings: dict[str, Any], apply_to: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_policy(pattern, settings, 0, apply_to, is_operator=False)
    assert refused.value.text == f"Validation failed\n\n{why}\n"


def test_operator_policies_have_fewer_settings() -> None:
    check_policy("a", {"max-length": 5}, 0, "all", is_operator=True)
    with pytest.raises(InvalidRequest, match="are not recognised policy settings"):
        check_policy("a", {"dead-letter-exchange": "x"}, 0, "all", is_operator=True)


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    for change in (
        VhostPut(Vhost("/")),
        ExchangeAdded(Exchange("/", "orders", "topic")),
        QueueAdded(Queue("/", "orders.1", 1, 0, True, {"x-max-length": 3})),
        QueueAdded(Queue("/", "other", 2, 0)),
        PolicyPut(policy("short", "orders", {"max-length": 10})),
    ):
        topology.apply(change)
    return topology


def test_a_preview_says_what_would_change_and_changes_nothing(topology: Topology) -> None:
    rows = preview(topology, policy("new", "o", {"max-length": 2, "alternate-exchange": "lost"}, priority=1))
    assert {(row["kind"], row["name"]): (row["policy_before"], row["policy"], row["changes"]) for row in rows} == {
        ("exchange", "orders"): ("short", "new", {"alternate-exchange": [None, "lost"]}),
        ("queue", "orders.1"): ("short", "new", {"x-max-length": [3, 2]}),
        ("queue", "other"): (None, "new", {"x-max-length": [None, 2]}),
    }
    (row, _) = preview(topology, policy("short", "", {}), is_deleted=True)[::-1]
    assert (row["name"], row["policy"], row["changes"]) == ("orders.1", None, {}), "its own argument was smaller"
    assert len(topology.policies) == 1


def test_matching_tells_of_all_policies_that_match_a_name(topology: Topology) -> None:
    topology.apply(PolicyPut(policy("high", "orders", {"expires": 10}, priority=1)))
    rows = matching(topology, "/", "queue", "orders.never-declared", "classic")
    assert [(row["name"], row["applies"]) for row in rows] == [("high", True), ("short", False)]
    topology.apply(PolicyRemoved("/", "high", is_operator=False))
    assert [row["name"] for row in matching(topology, "/", "exchange", "orders", "classic")] == ["short"]
