"""Answers as etcd 3.4 to 3.6 give them, split anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmq.replication.etcd.answers import Failure, Status, WatchStream, read_answer
from shardmq.replication.etcd.messages import (
    Event,
    Header,
    KeyValue,
    Range,
    RangeAnswer,
    TxnAnswer,
    WatchAnswer,
    prefix_end,
    ranges_request,
    swap_request,
    watch_request,
)

NO_GATEWAY = "; is it etcd's port for clients, with --enable-grpc-gateway?"
HEADER = (
    b'"header":{"cluster_id":"324952591200643719","member_id":"18446744073709551615","revision":"2","raft_term":"2"}'
)


def test_requests_are_protocol_buffers_json() -> None:
    since = b'{"key":"YQ==","range_end":"Yg==","min_mod_revision":"7"}'
    assert ranges_request([Range(b"a", b"b", 7)]).body == b'{"success":[{"request_range":%s}]}' % since
    assert swap_request(b"a", b"\xff", 2**62).body == (
        b'{"compare":[{"key":"YQ==","target":"MOD","result":"EQUAL","mod_revision":"4611686018427387904"}],'
        b'"success":[{"request_put":{"key":"YQ==","value":"/w=="}}],"failure":[{"request_range":{"key":"YQ=="}}]}'
    )
    assert b'"start_revision":"3"' in watch_request(b"a", b"b", 3).body


@pytest.mark.parametrize(("prefix", "end"), [(b"ab", b"ac"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")])
def test_a_range_ends_behind_all_that_begins_with_its_prefix(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end


def test_what_is_absent_has_its_default_and_numbers_may_be_strings() -> None:
    assert read_answer(200, b"{" + HEADER + b"}", RangeAnswer) == RangeAnswer(header=Header(2, 18446744073709551615, 2))
    body = b'{"succeeded":true,"responses":[{"response_put":{"header":{"revision":3}}}],"new_in_4.0":{}}'
    answer = read_answer(200, body, TxnAnswer)
    assert isinstance(answer, TxnAnswer)
    assert answer.succeeded


@pytest.mark.parametrize(
    ("http_status", "body", "failure"),
    [
        (400, b'{"error":"no key","message":"no key","code":3}', Failure(3, "no key")),
        (400, b'{"code":3,"message":"no key","details":[]}', Failure(3, "no key")),
        (503, b'{"error":{"grpc_code":14,"http_code":503,"message":"gone"}}', Failure(14, "gone")),
        (
            404,
            b"Not Found",
            Failure(2, f"HTTP 404 Not Found{NO_GATEWAY}"),
        ),
        (502, b"\xff<html>", Failure(2, "HTTP 502 \ufffd<html>")),
        (500, b"{}", Failure(2, "HTTP 500")),
    ],
)
def test_errors_have_two_shapes_or_none(http_status: int, body: bytes, failure: Failure) -> None:
    assert read_answer(http_status, body, RangeAnswer) == failure


@pytest.mark.parametrize("body", [b"", b"null", b"<html>", b'{"kvs":3}', b'{"kvs":[{"key":"*"}]}', b"\xff"])
def test_an_answer_that_is_not_etcds_is_a_failure(body: bytes) -> None:
    failure = read_answer(200, body, RangeAnswer)
    assert isinstance(failure, Failure)
    assert not failure.is_without_effect


def test_who_waits_for_a_majority_may_have_taken_effect() -> None:
    assert not Failure(Status.UNAVAILABLE, "etcdserver: request timed out").is_without_effect
    assert Failure(Status.PERMISSION_DENIED, "permission denied").is_without_effect


STREAM = b"\n".join(
    [
        b'{"result":{' + HEADER + b',"created":true}}',
        b'{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","mod_revision":"8","value":"Yg=="}},'
        b'{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"9"}}]}}',
        b'{"result":{"header":{"revision":"12"}}}',
        b'{"result":{"header":{},"canceled":true,"compact_revision":"11"}}',
        b'{"error":{"grpc_code":14,"http_code":503,"message":"closing","http_status":"Service Unavailable"}}',
        b"",
    ]
)
MESSAGES = [
    WatchAnswer(created=True, header=Header(2, 18446744073709551615, 2)),
    WatchAnswer(
        events=[Event(KeyValue(b"a", b"b", mod_revision=8)), Event(KeyValue(b"a", mod_revision=9), "DELETE")],
        header=Header(9),
    ),
    WatchAnswer(header=Header(12)),
    WatchAnswer(canceled=True, compact_revision=11),
    Failure(14, "closing"),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20).map(sorted))
def test_a_stream_may_be_split_anywhere(cuts: list[int]) -> None:
    stream = WatchStream()
    edges = [0, *cuts, len(STREAM)]
    read = [message for start, end in itertools.pairwise(edges) for message in stream.receive(STREAM[start:end])]
    assert read == MESSAGES


def test_newer_etcds_name_the_code_of_a_streams_error_differently() -> None:
    assert WatchStream().receive(b'{"error":{"code":16,"message":"who","details":[]}}\n') == [Failure(16, "who")]
