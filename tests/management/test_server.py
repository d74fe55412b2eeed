"""Logins, rights, paths and errors of the HTTP API, over real processes."""

import http.client
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused


def refused(browser: Browser, method: str, path: str, body: object = None) -> tuple[int, str | None, str | None]:
    with pytest.raises(Refused) as error:
        browser.ask(method, path, body)
    return error.value.status, error.value.error, error.value.reason


def ask_until_refused(browser: Browser) -> None:
    while True:
        browser.get("/whoami")


@pytest.mark.parametrize(("user", "password"), [("", ""), ("guest", "wrong"), ("nobody", "x"), ("guest", "")])
def test_who_does_not_log_in_is_told_to(managed: Broker, user: str, password: str) -> None:
    with Browser(managed.management_url, user, password) as browser:
        assert refused(browser, "GET", "/whoami") == (401, "not_authorized", "Login failed")
        assert browser.headers["www-authenticate"].startswith("Basic ")


def test_tags_say_who_may_see_what(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        for user, tags in (("plain", []), ("manager", ["management"]), ("watcher", ["monitoring"])):
            connection.user_put(user, f"{user}'s", tags=tags)
        connection.vhost_put("theirs")
        connection.permission_put("manager", "theirs", ".*", ".*", ".*")
    with Browser(managed.management_url, "plain", "plain's") as plain:
        assert refused(plain, "GET", "/whoami")[:2] == (401, "not_authorised")
    with Browser(managed.management_url, "manager", "manager's") as manager:
        assert manager.get("/whoami") == {"name": "manager", "tags": ["management"], "is_internal_user": True}
        assert [row["name"] for row in manager.get("/vhosts")] == ["theirs"]
        assert {row["vhost"] for row in manager.get("/exchanges")} == {"theirs"}
        assert refused(manager, "GET", "/nodes") == (401, "not_authorised", "Not monitor user")
        assert refused(manager, "GET", "/users") == (401, "not_authorised", "Not administrator user")
        reason = "User not authorised to access virtual host"
        assert refused(manager, "GET", "/queues/%2F") == (401, "not_authorised", reason)
    with Browser(managed.management_url, "watcher", "watcher's") as watcher:
        assert {row["name"] for row in watcher.get("/vhosts")} >= {"/", "theirs"}
        assert watcher.get("/nodes")[0]["running"]
        assert refused(watcher, "GET", "/queues/nowhere") == (404, "not_found", "no vhost 'nowhere'")


def test_names_in_paths_may_have_any_character(managed: Broker, admin: Browser) -> None:
    names = ["a/b", "100%", "1+1", "a b", "%2F", "ä?#&", "a;b=c"]
    with shardmq.connect(managed.url) as connection:
        channel = connection.channel()
        for name in names:
            channel.queue_declare(name)
    quoted = ["a%2Fb", "100%25", "1+1", "a%20b", "%252F", "%C3%A4%3F%23%26", "a;b=c"]
    assert [admin.get(f"/queues/%2f/{part}")["name"] for part in quoted] == names
    assert admin.get("/queues/%2F/1%2B1")["name"] == "1+1"


def test_what_is_not_there_is_said_in_rabbitmqs_shape(admin: Browser) -> None:
    assert refused(admin, "GET", "/nonsense") == (404, "Object Not Found", "Not Found")
    assert refused(admin, "GET", "/queues/%2F/none") == (
        404,
        "not_found",
        "no queue 'none' in vhost '/'; declare it first",
    )
    status, error, _ = refused(admin, "DELETE", "/overview")
    assert (status, error, admin.headers["allow"]) == (405, "Method Not Allowed", "GET,HEAD")
    admin.ask("OPTIONS", "/overview")
    assert admin.headers["allow"] == "GET,HEAD,OPTIONS"


def test_a_changed_password_ends_what_the_old_one_began(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection, Browser(managed.management_url, "ann", "one") as ann:
        connection.user_put("ann", "one", tags=["management"])
        assert ann.get("/whoami")["tags"] == ["management"]
        connection.user_put("ann", "two", tags=["monitoring"])
        with pytest.raises(Refused, match="Login failed"):
            ask_until_refused(ann)  # within a second
    with Browser(managed.management_url, "ann", "two") as ann:
        assert ann.get("/whoami")["tags"] == ["monitoring"]


def test_many_at_once_share_a_login(managed: Broker) -> None:
    barrier = threading.Barrier(16)

    def ask(_: int) -> str:
        with Browser(managed.management_url) as browser:
            barrier.wait()
            return str(browser.get("/whoami")["name"])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == ["guest"] * 16


def test_requests_that_are_none_end_their_connection_alone(managed: Broker, admin: Browser) -> None:
    parts = urlsplit(managed.management_url)
    for bad in (
        b"nonsense\r\n\r\n",
        b"GET /api/" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"\0\xff" * 100 + b"\r\n\r\n",
    ):
        with socket.create_connection((parts.hostname, parts.port)) as wire:
            wire.sendall(bad)
            assert b" 400 " in wire.recv(100)
    assert admin.get("/whoami")["name"] == "guest"


def test_head_is_get_without_its_body(managed: Broker) -> None:
    parts = urlsplit(managed.management_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("HEAD", "/api/version")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()


@pytest.mark.parametrize(
    ("path", "most"),
    [("/api/queues/%2F/none", 1 << 20), ("/api/definitions", 32 << 20), ("/api/login", 1 << 20)],
)
def test_bodies_are_bounded_whether_their_length_is_told_or_not(managed: Broker, path: str, most: int) -> None:
    parts = urlsplit(managed.management_url)
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/x-www-form-urlencoded"}
    method = "PUT" if "queues" in path else "POST"
    told = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    told.request(method, path, b"x" * (most + 1) if most < 1 << 21 else b"", {**login, "Content-Length": str(most + 1)})
    assert told.getresponse().status == 413
    told.close()
    untold = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    pieces = (b"x" * 65_536 for _ in range(most // 65_536 + 2))
    try:
        untold.request(method, path, pieces, login, encode_chunked=True)
    except OSError:
        return  # it was cut off in the middle
    assert untold.getresponse().status == 413
    untold.close()


def test_browsers_share_an_answer_until_something_is_changed(managed: Broker, admin: Browser) -> None:
    page = {"X-Shardmq-Page": "1"}
    with shardmq.connect(managed.url) as connection, connection.channel() as channel:
        before = {row["name"] for row in admin.ask("GET", "/queues", headers=page)}
        channel.queue_declare("unseen")
        shared = admin.ask("GET", "/queues", headers=page)
        assert {row["name"] for row in admin.get("/queues")} == before | {"unseen"}  # a program gets its own
        admin.put("/queues/%2F/changed", {})
        now = {row["name"] for row in admin.ask("GET", "/queues", headers=page)}
        assert now == before | {"unseen", "changed"}
        assert admin.headers["content-type"] == "application/json; charset=utf-8"
        assert {row["name"] for row in shared} in (before, before | {"unseen"})  # whether a second has passed meanwhile
        admin.delete("/queues/%2F/changed")
