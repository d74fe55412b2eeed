"""What a caller may do wrong, and a shard that stands still while lists are asked for; over real processes."""

import asyncio
import contextlib
import http.client
import os
import re
import signal
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote

import pytest
from aiohttp import web

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.management.web import streaming
from shardmq.management.web.call import STALLED_SECONDS
from tests.management.browser import Browser, Refused
from tests.management.test_large_answers import AUTHORIZATION

ODD = "a/b %2F"
"""The name of a virtual host and of a queue in it."""


@pytest.fixture(scope="module")
def odd(managed: Broker) -> Iterator[str]:
    """The path of a virtual host whose name has what paths are made of."""
    part = quote(ODD, safe="")
    with Browser(managed.management_url) as admin:
        assert admin.put(f"/vhosts/{part}") == 201
        assert admin.put(f"/queues/{part}/{part}") == 201
        yield part
        assert admin.delete(f"/vhosts/{part}") == 204


def test_a_virtual_host_may_have_slashes_and_percents_in_its_name(admin: Browser, odd: str) -> None:
    for part in (odd, odd.replace("%2F", "%2f")):
        assert admin.get(f"/queues/{part}/{part}")["vhost"] == ODD
        assert [row["name"] for row in admin.get(f"/queues/{part}?sort=messages")] == [ODD]
        assert [row["destination"] for row in admin.get(f"/bindings/{part}")] == [ODD]
        assert admin.get(f"/vhosts/{part}/permissions")[0]["vhost"] == ODD
        assert [row["name"] for row in admin.get(f"/definitions/{part}")["queues"]] == [ODD]
    for wrong in ("a/b%20%2F", quote(odd, safe="")):  # not quoted, and quoted twice
        with pytest.raises(Refused) as refused:
            admin.get(f"/queues/{wrong}/{odd}")
        assert refused.value.status == 404


@pytest.mark.parametrize("name", ["job{1}", "{", "}", "{x:.*}", "a}{b"])
def test_names_with_braces_are_reached(admin: Browser, name: str) -> None:
    part = quote(name, safe="")
    assert admin.put(f"/vhosts/{part}") == 201
    assert admin.put(f"/queues/{part}/{part}") == 201
    assert admin.put(f"/exchanges/{part}/{part}") == 201
    admin.post(f"/bindings/{part}/e/{part}/q/{part}", {"routing_key": name})
    (bound,) = admin.get(f"/bindings/{part}/e/{part}/q/{part}")
    assert admin.get(f"/bindings/{part}/e/{part}/q/{part}/{quote(bound['properties_key'], safe='')}") == bound
    assert admin.post(f"/exchanges/{part}/{part}/publish", {"routing_key": name, "payload": "x"}) == {"routed": True}
    assert [row["payload"] for row in admin.post(f"/queues/{part}/{part}/get", {"ackmode": "ack_requeue_false"})] == [
        "x"
    ]
    assert (admin.get(f"/queues/{part}/{part}")["name"], admin.get(f"/queues/{part}")[0]["vhost"]) == (name, name)
    assert admin.put(f"/users/{part}", {"tags": "", "password": "x"}) == 201
    assert admin.delete(f"/users/{part}") == 204
    assert admin.delete(f"/queues/{part}/{part}") == 204
    assert admin.delete(f"/vhosts/{part}") == 204


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "image/png", "nonsense", ""])
def test_a_body_is_json_whatever_type_it_is_said_to_be(admin: Browser, odd: str, kind: str) -> None:
    admin.ask("PUT", f"/queues/{odd}/typed", b'{"auto_delete": true}', {"Content-Type": kind})
    assert admin.get(f"/queues/{odd}/typed")["auto_delete"]


def ask_until_refused(browser: Browser) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        browser.get("/whoami")
        time.sleep(0.05)


def test_a_password_that_is_changed_over_another_way_ends_what_the_old_one_began(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        connection.user_put("moved", "one", tags=["monitoring"])
        with Browser(managed.management_url, "moved", "one") as browser:
            assert browser.get("/whoami")["name"] == "moved"
            connection.user_put("moved", "two")
            with pytest.raises(Refused, match="Login failed"):
                ask_until_refused(browser)


def test_definitions_may_have_what_others_know_and_this_broker_does_not(admin: Browser) -> None:
    queue = {"name": "known", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}, "future": {"a": 1}}
    upstream = {"component": "federation-upstream", "vhost": "/", "name": "up", "value": {"uri": "amqp://"}}
    admin.post("/definitions", {"queues": [queue], "parameters": [upstream], "later": [1], "rabbit_version": "9.9.9"})
    assert admin.get("/queues/%2F/known")["durable"]


def test_no_other_site_gets_an_answer_into_its_hands(managed: Broker) -> None:
    where = re.search(r"//([^:/]+):(\d+)", managed.management_url)
    assert where is not None
    connection = http.client.HTTPConnection(where[1], int(where[2]), timeout=10)
    origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "DELETE"}
    for method, status in (("OPTIONS", 200), ("GET", 200), ("TRACE", 405), ("PATCH", 405)):
        connection.request(method, "/api/queues", headers={**AUTHORIZATION, **origin})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    connection.close()


FORM = "Content-Type: application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("POST /api/login HTTP/1.1|Content-Encoding: gzip|" + FORM, b"\x1f\x00\x00\x00", 400),
        ("POST /api/login HTTP/1.1|Content-Type: multipart/form-data; boundary=x", b"--x\r\nabc", 400),
        ("POST /api/login HTTP/1.1|" + FORM + "; charset=nonsense", b"a=%f", 400),
        ("POST /api/login HTTP/1.1|" + FORM, b"username=\xff", 400),
        ("POST /api/login HTTP/1.1|" + FORM, b"&".join([b"a=b"] * 1000), 400),
        ("PUT /api/queues/%2F/x HTTP/1.1|Content-Encoding: gzip", b"\x1f\x00\x00\x00", 400),
        ("PUT /api/queues/%2F/x HTTP/1.1|Transfer-Encoding: chunked", b"zz\r\n", 400),
        ("GET /api/queues/%2F/a b HTTP/1.1", b"", 400),
        ("GET /api/queues/%2F/../../../etc/passwd HTTP/1.1", b"", 404),
        ("GET /api/queues/%2F/%00 HTTP/1.1", b"", 404),
        ("PUT /api/queues/%2F/x HTTP/1.1|Content-Length: 99999", b"{", 0),
    ],
)
def test_who_speaks_nonsense_is_told_so_and_leaves_no_traceback(
    managed: Broker, head: str, body: bytes, status: int
) -> None:
    host, port = managed.management_url.split("/")[2].split(":")
    lines = [*head.split("|"), "Host: x", "Connection: close", f"Authorization: {AUTHORIZATION['Authorization']}"]
    if "chunked" not in head and "Length" not in head:
        lines.append(f"Content-Length: {len(body)}")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        if status:  # else it goes in the middle of its request
            assert client.recv(65_536).split()[1] == b"%d" % status
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/livez")
    assert connection.getresponse().status == 200
    connection.close()
    assert "Traceback" not in managed.log.read_text()


def post_until_done(admin: Browser, definitions: dict[str, object]) -> None:
    """Send definitions; again where the machine was so busy that a gateway seemed to hang."""
    deadline = time.monotonic() + STALLED_SECONDS
    while True:
        try:
            admin.post("/definitions", definitions)
        except Refused as refused:
            if refused.status != 503 or time.monotonic() > deadline:
                raise
        else:
            return


def test_bodies_that_do_not_come_on_hold_up_neither_others_nor_who_sends_them(managed: Broker, admin: Browser) -> None:
    host, port = managed.management_url.split("/")[2].split(":")
    head = "POST /api/{} HTTP/1.1|Host: x|Content-Length: 9000000|Authorization: {}||"
    with contextlib.ExitStack() as stack, shardmq.connect(managed.url) as connection:
        connection.user_put("slow", "slow", tags=["administrator"])
        clients: list[socket.socket] = []
        slow = f"Basic {b64encode(b'slow:slow').decode()}"
        for path, who, size in (
            ("definitions", slow, 400_000),  # has a place, and stops
            ("definitions", slow, 400_000),
            ("definitions", slow, 400_000),  # waits for one
            ("exchanges/%2F/amq.topic/publish", slow, 400_000),
            ("definitions", AUTHORIZATION["Authorization"], 100),  # needs none
        ):
            for _ in range(8):
                client = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
                clients.append(client)
                client.sendall(head.format(path, who).replace("|", "\r\n").encode() + b" " * size)
        began = time.monotonic()
        exchange = {"name": "after", "vhost": "/", "type": "topic"}
        post_until_done(admin, {"exchanges": [exchange], "unknown": "x" * 2_000_000})
        post_until_done(admin, {"exchanges": [exchange]})
        assert time.monotonic() - began < STALLED_SECONDS / 2
        assert b" 408 " in clients[0].recv(65_536)  # others wait for its place
        assert time.monotonic() - began < STALLED_SECONDS


def test_lists_and_metrics_come_while_a_shard_stands_still_and_say_what_is_missing(
    managed: Broker, admin: Browser
) -> None:
    queues = [f"still-{number}" for number in range(12)]
    for name in queues:
        admin.put(f"/queues/%2F/{name}")
    there = {row["name"]: row["shard"] for row in admin.get("/queues/%2F?name=still-")}
    os.kill(managed.pids["shard-0"], signal.SIGSTOP)
    try:
        begun = time.monotonic()
        assert admin.get("/overview")["away"] == ["shard-0"]
        for path in ("/queues/%2F?name=still-", "/queues/%2F?name=still-&sort=messages&page=1&page_size=500"):
            found = admin.get(path)
            rows = found if isinstance(found, list) else found["items"]
            assert {row["name"]: row["state"] for row in rows} == {
                name: "running" if shard else "down" for name, shard in there.items()
            }
            assert all(("messages" in row) == bool(there[row["name"]]) for row in rows)
        for path in ("/overview", "/nodes", "/vhosts", "/bindings", "/definitions", "/shardmq/transactions"):
            admin.get(path)
        connection = http.client.HTTPConnection(managed.management_url.split("/")[2], timeout=30)
        for path in ("/metrics", "/metrics/per-object"):
            connection.request("GET", path, headers=AUTHORIZATION)
            said = connection.getresponse().read().decode()
            assert "shardmq_shards_away" in said
        connection.close()
        assert time.monotonic() - begun < 9  # Prometheus waits for 10 s
    finally:
        os.kill(managed.pids["shard-0"], signal.SIGCONT)
    end = time.monotonic() + 20
    while {row["state"] for row in admin.get("/queues/%2F?name=still-")} != {"running"}:
        assert time.monotonic() < end, "the shard is listed again once it answers"


def test_lists_and_metrics_come_while_the_coordinator_stands_still(managed: Broker, admin: Browser) -> None:
    os.kill(managed.pids["coordinator"], signal.SIGSTOP)
    try:
        begun = time.monotonic()
        for path in ("/overview", "/nodes", "/connections", "/channels?sort=name", "/exchanges", "/queues/%2F"):
            admin.get(path)
        admin.get("/shardmq/findings")
        assert time.monotonic() - begun < 8
    finally:
        os.kill(managed.pids["coordinator"], signal.SIGCONT)


def test_who_reads_nothing_of_a_long_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "READ_SECONDS", 0.2)
    ended = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 20)
        finally:
            ended.set()

    async def answer(request: web.Request) -> web.StreamResponse:
        made = pieces()
        try:
            return await streaming.send(request, made, 200, {})
        finally:
            await made.aclose()

    async def ask() -> None:
        application = web.Application()
        application.router.add_get("/", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        _, writer = await asyncio.open_connection(*runner.addresses[0])
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
        writer.close()
        await runner.cleanup()

    asyncio.run(ask())
