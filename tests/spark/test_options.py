"""Options of the data source: names, values, and what is refused in which words."""

import pickle

import pytest

from shardmq.errors import InvalidRequest
from shardmq.spark.options import TABLE, Options, Use, names, parse

URL = {"url": "shardmq://127.0.0.1/"}
TOPIC = {**URL, "subscribe": "orders"}


def test_capital_and_small_letters_are_one() -> None:
    assert parse({**URL, "TXNID": "x", "txntimeoutms": "5000"}, "write") == Options(
        url=URL["url"], transaction_id="x", transaction_timeout_ms=5000
    )


@pytest.mark.parametrize("use", ["read", "write", "stream", "topic", "readStream"])
def test_an_unknown_option_is_refused_with_the_list(use: Use) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse({**URL, "colour": "red"}, use)
    assert "'colour'" in refused.value.text
    assert [name for name in names(use) if name not in refused.value.text] == []


def test_an_option_of_another_use_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"'queue' for writing; there are url"):
        parse({**URL, "queue": "q"}, "write")
    with pytest.raises(InvalidRequest, match="'txnId' for writing streams"):
        parse({**URL, "txnId": "x"}, "stream")


@pytest.mark.parametrize(
    ("use", "given", "said"),
    [
        ("write", {}, "option url is missing"),
        ("read", URL, "option queue is missing"),
        ("write", {**URL, "mandatory": "yes"}, "option mandatory is 'yes'; write true or false"),
        ("write", {**URL, "gateways": "all"}, "option gateways is 'all'; write nearest or spread"),
        ("write", {**URL, "delivery": "at-most-once"}, "write exactly-once or at-least-once"),
        ("write", {**URL, "priority": "256"}, "option priority is '256'; write 0 to 255"),
        ("write", {**URL, "delay_ms": "soon"}, "write a whole number"),
        ("write", {**URL, "headers": "a=b"}, "write a JSON object"),
        ("write", {**URL, "headers": "[1]"}, "write a JSON object"),
        ("write", {**URL, "exchange": "x" * 256}, "write at most 255 bytes"),
        ("write", {**URL, "txnId": ""}, "option txnId is empty"),
        ("read", {**URL, "queue": "q", "drain": "true"}, "option drain needs drainId.*shardmq.spark.drain"),
        ("read", {**URL, "queue": "q", "drainId": "d"}, "option drainId is for drain=true"),
        ("topic", URL, "give one of the options subscribe, subscribePattern and assign"),
        ("topic", {**TOPIC, "subscribePattern": "a.*"}, "give one of the options subscribe"),
        ("topic", {**URL, "subscribe": "a,,b"}, "option subscribe is 'a,,b'; write names of topics with commas"),
        ("topic", {**URL, "subscribePattern": "("}, r"option subscribePattern is '\('; write a regular expression"),
        ("topic", {**URL, "assign": "orders"}, "option assign is 'orders'; write a JSON object"),
        ("topic", {**URL, "assign": '{"orders": 0}'}, r'write the numbers of partitions, such as {"orders": \[0, 1\]}'),
        ("topic", {**URL, "assign": '{"orders": [-1]}'}, "write the numbers of partitions"),
        ("topic", {**TOPIC, "startingOffsets": "soon"}, "option startingOffsets is 'soon'; write a JSON object"),
        ("topic", {**TOPIC, "startingOffsets": '{"orders": 5}'}, "write whole numbers of at least -2"),
        ("topic", {**TOPIC, "startingOffsets": '{"orders": {"0": -3}}'}, "write whole numbers of at least -2"),
        ("topic", {**TOPIC, "startingOffsets": '{"orders": {"x": 3}}'}, "write whole numbers of at least -2"),
        ("topic", {**TOPIC, "startingOffsets": "latest"}, "a batch that begins there has no messages"),
        ("topic", {**TOPIC, "endingOffsets": "earliest"}, "option endingOffsets is 'earliest'; write latest, or"),
        ("topic", {**TOPIC, "endingOffsets": '{"orders": {"0": -2}}'}, "write whole numbers of at least -1"),
        ("topic", {**TOPIC, "startingTimestamp": "2026-11-20"}, "write a whole number"),
        ("topic", {**TOPIC, "maxOffsetsPerTrigger": "5"}, "'maxOffsetsPerTrigger' for reading topics; there are url"),
        ("readStream", {**TOPIC, "endingOffsets": "latest"}, "'endingOffsets' for reading topics as a stream"),
        ("readStream", {**TOPIC, "maxTriggerDelay": "15"}, "write a number and one of ms, s, m, h and d"),
        (
            "readStream",
            {**TOPIC, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "option minOffsetsPerTrigger is 6, above maxOffsetsPerTrigger 5",
        ),
    ],
)
def test_a_value_without_meaning_is_refused(use: Use, given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        parse(given, use)


def test_what_spark_adds_to_a_stream_is_let_pass() -> None:
    assert parse({**URL, "checkpointlocation": "/c", "queryname": "q"}, "stream") == Options(url=URL["url"])


def test_what_topics_are_read_by_is_understood() -> None:
    options = parse(
        {
            **URL,
            "assign": '{"orders": [2, 0, 2]}',
            "startingOffsets": '{"orders": {"0": -2, "2": 7}}',
            "maxTriggerDelay": " 90s ",
            "includeHeaders": "TRUE",
        },
        "readStream",
    )
    assert options.assign == {"orders": (0, 2)}
    assert options.starting_offsets == {"orders": {0: -2, 2: 7}}
    assert (options.max_delay_ms, options.has_headers, options.fails_on_loss) == (90_000, True, True)
    assert parse({**URL, "subscribe": "a, b,a"}, "topic").subscribe == ("a", "b")
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_says_what_it_does() -> None:
    assert [name for name, declared in TABLE.items() if not declared.metadata["help"].endswith(".")] == []


def test_options_travel_to_executors() -> None:
    options = parse({**URL, "headers": '{"a": 1}', "timeoutMs": "1500"}, "write")
    assert pickle.loads(pickle.dumps(options)) == options
    assert (options.headers, options.timeout) == ({"a": 1}, 1.5)
