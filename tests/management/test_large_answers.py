"""Answers of many rows, which are sent piece by piece, and answers that several wait for; over real processes."""

import asyncio
import gzip
import http.client
import json
import os
import re
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.management.state.callers import Callers, Credentials
from shardmq.management.state.shared import SharedAnswers
from tests.management.browser import Browser

QUEUES: Final = 2000

GROWTH_MB_MAX: Final = 12
"""Measured: 6 to 7, with 10,000 queues as well. A list in memory whole takes 18 MB for 2,000 queues, 92 for 10,000."""

EXCHANGES: Final = 5000

EXCHANGES_MB_MAX: Final = 5
"""Measured: 3. In memory whole they take 8."""

AUTHORIZATION: Final = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}


@pytest.fixture(scope="module")
def many(managed: Broker) -> Iterator[shardmq.Connection]:
    """A connection to a broker with many queues."""
    queues = [
        {"name": f"queue-{number:05}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        for number in range(QUEUES)
    ]
    with shardmq.connect(managed.url) as connection:
        connection.definitions_import({"queues": queues})
        yield connection


def asked(managed: Broker, method: str, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    where = re.search(r"//([^:/]+):(\d+)", managed.management_url)
    assert where is not None
    connection = http.client.HTTPConnection(where[1], int(where[2]), timeout=30)
    try:
        connection.request(method, path, headers={**AUTHORIZATION, **headers})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_a_list_of_many_exchanges_is_whole_and_takes_little_memory(managed: Broker, admin: Browser) -> None:
    names = [f"exchange-{number:05}" for number in range(EXCHANGES)]
    with shardmq.connect(managed.url) as connection:
        connection.vhost_put("wide")
        connection.permission_put("guest", "wide", "", ".*", "")
        admin.get("/exchanges/wide")
        before = peak_mb(managed.pids["management"])
        connection.definitions_import(
            {"exchanges": [{"name": name, "vhost": "wide", "type": "topic"} for name in names]}
        )
        with shardmq.connect(f"{managed.url}wide") as there:
            there.channel().basic_publish(names[0], "key", b"")
        rows = [row for row in admin.get("/exchanges/wide") if row["name"].startswith("exchange-")]
        assert [row["name"] for row in rows] == names
        assert rows[0]["message_stats"]["publish_in"] == 1
        assert rows[-1].items() >= {"vhost": "wide", "type": "topic", "durable": True, "arguments": {}}.items()
        listed = admin.get("/exchanges?sort=type&sort_reverse=true&name=exchange-&columns=name")
        assert [row["name"] for row in listed] == names
        assert peak_mb(managed.pids["management"]) - before < EXCHANGES_MB_MAX
        connection.vhost_delete("wide")


@pytest.mark.usefixtures("many")
def test_answers_of_many_queues_are_whole_and_take_little_memory(managed: Broker, admin: Browser) -> None:
    pid = managed.pids["management"]
    admin.get("/overview")
    before = peak_mb(pid)
    names = [f"queue-{number:05}" for number in range(QUEUES)]
    answer, packed = asked(managed, "GET", "/api/queues", **{"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    rows = json.loads(gzip.decompress(packed))
    assert [row["name"] for row in rows] == names
    assert {"messages", "arguments", "state"} <= set(rows[-1])
    assert [row["name"] for row in admin.get("/queues/%2F?columns=name")] == names
    assert sorted(row["name"] for row in admin.get("/definitions")["queues"]) == names
    answer, said = asked(managed, "GET", "/metrics/per-object")
    assert answer.headers["Transfer-Encoding"] == "chunked"
    families = {family.name: family for family in text_string_to_metric_families(said.decode())}
    labels = [sample.labels["queue"] for sample in families["rabbitmq_queue_messages_ready"].samples]
    assert labels == names
    answer, said = asked(managed, "GET", "/api/queues?sort=name&sort_reverse=true")
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert [row["name"] for row in json.loads(said)] == names[::-1]
    assert [row["name"] for row in admin.get("/queues?page=3&sort=state&name=queue&columns=name")["items"]] == names[
        200:300
    ]
    for column in ("destination", "properties_key"):  # every queue is bound to the default exchange
        found = admin.get(f"/bindings/%2F?sort={column}&sort_reverse=true&columns=destination")
        assert [row["destination"] for row in found] == names[::-1]
    assert peak_mb(pid) - before < GROWTH_MB_MAX
    answer, said = asked(managed, "HEAD", "/api/queues")
    assert (answer.status, said) == (200, b"")


def test_queues_that_move_to_another_page_meanwhile_are_listed(managed: Broker, many: shardmq.Connection) -> None:
    where = re.search(r"//([^:/]+):(\d+)", managed.management_url)
    assert where is not None
    connection = http.client.HTTPConnection(where[1], int(where[2]), timeout=30)
    connection.sock = socket.socket()
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the answer is made as far as it is read
    connection.sock.connect((where[1], int(where[2])))
    connection.request("GET", "/api/queues", headers=AUTHORIZATION)
    answer = connection.getresponse()
    begun = answer.read(1000)
    channel = many.channel()
    for number in range(30):
        channel.queue_delete(f"queue-{number:05}")
    rows = json.loads(begun + answer.read())
    connection.close()
    assert {row["name"] for row in rows} >= {f"queue-{number:05}" for number in range(30, QUEUES)}
    assert len(rows) == len({row["name"] for row in rows})


def test_a_shared_answer_comes_where_the_first_who_asked_hangs_up_and_is_logged_out(managed: Broker) -> None:
    async def ask() -> None:
        callers, shared, credentials = Callers(managed.url), SharedAnswers(), Credentials("guest", "guest")
        asked = asyncio.Event()

        async def overview() -> tuple[str, int]:
            async with callers.borrow(credentials) as caller:

                async def answer() -> int:
                    with caller.held():
                        connection = await caller.administration()
                        asked.set()
                        return len((await connection.stats_overview(is_detailed=True))["processes"])

                return caller.user, await shared.get("overview", answer)

        first = asyncio.ensure_future(overview())
        await asked.wait()
        callers.forget("guest")  # its login ends when it has its answer
        others = [asyncio.ensure_future(overview()) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait((first,))
        os.kill(managed.pids["shard-0"], signal.SIGCONT)
        assert len(set(await asyncio.gather(*others))) == 1
        await callers.close()

    os.kill(managed.pids["shard-0"], signal.SIGSTOP)
    try:
        asyncio.run(ask())
    finally:
        os.kill(managed.pids["shard-0"], signal.SIGCONT)
