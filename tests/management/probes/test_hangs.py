"""Gateways that hang while they let clients connect: those that live are asked, or it is told soon; real processes."""

import base64
import contextlib
import http.client
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import pytest

from shardmq.cmd.run.broker import Broker
from tests.running import running

PUBLISH = '{"properties": {}, "routing_key": "nowhere", "payload": "", "payload_encoding": "string"}'
AUTHORIZATION = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(Broker(tmp_path_factory.mktemp("hangs") / "data", shards=1, gateways=2, management=True)) as broker:
        yield broker


def ask(broker: Broker, method: str, path: str, headers: dict[str, str] = AUTHORIZATION) -> tuple[int, str, float]:
    """Status, body and seconds."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(urlsplit(broker.management_url).netloc, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, PUBLISH if method == "POST" else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), time.monotonic() - begun


@contextlib.contextmanager
def stopped(broker: Broker, *names: str) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)  # so that nobody ends them meanwhile
    pids = [broker.kill(name, signal.SIGSTOP) for name in names]
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        os.kill(broker.pid, signal.SIGCONT)


def test_another_gateway_is_asked_where_one_hangs(pair: Broker) -> None:
    assert ask(pair, "GET", "/api/overview")[0] == 200  # the login is one of either
    with stopped(pair, "gateway-0"):
        for _ in range(2):
            for method, path in (
                ("GET", "/metrics"),
                ("GET", "/readyz"),
                ("GET", "/livez"),
                ("POST", "/api/exchanges/%2F/amq.default/publish"),
            ):
                status, body, seconds = ask(pair, method, path)
                assert status == 200, body
                assert seconds < 4


def test_where_all_hang_it_is_told_soon_which_do(pair: Broker) -> None:
    assert ask(pair, "GET", "/api/overview")[0] == 200
    with stopped(pair, "gateway-0", "gateway-1"), ThreadPoolExecutor() as pool:
        for status, body, seconds in pool.map(partial(ask, pair, "GET"), ("/metrics", "/api/queues", "/readyz")):
            assert (status, "does not answer" in body or "said nothing" in body) == (503, True), body
            assert pair.url.split("@")[1].strip("/") in body
            assert seconds < 4
        assert ask(pair, "GET", "/livez")[0] == 200
    assert ask(pair, "GET", "/metrics")[0] == 200
