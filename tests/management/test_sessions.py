"""Logins of the page by cookie, and how its files are served, over real processes."""

import base64
import gzip
import http.client
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.management.api import ENDPOINTS
from shardmq.management.metrics.endpoints import METRICS
from shardmq.management.own import ENDPOINTS as OWN_ENDPOINTS

Answered = tuple[int, dict[str, str], bytes]


def ask(broker: Broker, method: str, path: str, headers: dict[str, str] | None = None, body: str = "") -> Answered:
    connection = http.client.HTTPConnection(urlsplit(broker.management_url).netloc, timeout=30)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def log_in(broker: Broker, user: str, password: str) -> Answered:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    return ask(broker, "POST", "/api/login", form, urlencode({"username": user, "password": password}))


@pytest.fixture(scope="module")
def cookie(managed: Broker) -> str:
    status, headers, _ = log_in(managed, "guest", "guest")
    assert status == 200
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    return headers["set-cookie"].partition(";")[0]


def test_a_cookie_stands_for_its_user(managed: Broker, cookie: str) -> None:
    status, _, body = ask(managed, "GET", "/api/whoami", {"Cookie": cookie})
    assert (status, json.loads(body)["name"]) == (200, "guest")


def test_a_cookie_alone_changes_nothing(managed: Broker, cookie: str) -> None:
    body = '{"durable": true}'
    assert ask(managed, "POST", "/api/shardmq/queues/%2F/a/move", {"Cookie": cookie}, body)[0] == 403
    headers = {"Cookie": cookie, "X-Shardmq-Page": "1"}
    assert ask(managed, "POST", "/api/shardmq/queues/%2F/a/move", headers, '{"to": "b"}')[0] == 404


def test_nothing_that_changes_something_goes_by_the_cookie_alone(managed: Broker, cookie: str) -> None:
    """Every endpoint that there is; forms of other sites get no further with a password that the browser remembers."""
    remembered = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
    writes = [each for each in (*ENDPOINTS, *OWN_ENDPOINTS, *METRICS) if each.method != "GET"]
    assert len(writes) > 50
    connection = http.client.HTTPConnection(urlsplit(managed.management_url).netloc, timeout=30)
    form = {"Content-Type": "text/plain", "Origin": "https://elsewhere.example"}
    for number, endpoint in enumerate(writes):
        path = endpoint.prefix + re.sub(r"\{\w+(:\[q.*?)?\}", "q", endpoint.path)
        forms = (
            [{**remembered, **form}, {**remembered, **form, "Origin": "null"}] if number % 6 == 0 else []
        )  # 100 lines
        for headers in ({"Cookie": cookie}, *forms):
            connection.request(endpoint.method, path, "{}", headers)
            answer = connection.getresponse()
            reason = json.loads(answer.read())["reason"]
            assert (answer.status, "cookie alone" in reason or "another site" in reason) == (403, True), path
    connection.close()
    words = urlencode({"username": "guest", "password": "guest"})
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://elsewhere.example"}
    assert ask(managed, "POST", "/api/login", kind, words)[0] == 403
    own = {**kind, "Origin": managed.management_url.rstrip("/")}
    assert ask(managed, "POST", "/api/login", own, words)[0] == 200


def test_the_page_asks_for_the_password_in_the_browsers_place(managed: Broker) -> None:
    assert "www-authenticate" in ask(managed, "GET", "/api/whoami")[1]
    assert "www-authenticate" not in ask(managed, "GET", "/api/whoami", {"X-Shardmq-Page": "1"})[1]


def test_a_wrong_password_begins_no_session(managed: Broker) -> None:
    status, headers, _ = log_in(managed, "guest", "wrong")
    assert (status, headers.get("set-cookie")) == (401, None)


def test_a_session_ends_when_somebody_logs_out(managed: Broker) -> None:
    cookie = log_in(managed, "guest", "guest")[1]["set-cookie"].partition(";")[0]
    assert ask(managed, "DELETE", "/api/login", {"Cookie": cookie})[0] == 403
    assert ask(managed, "GET", "/api/whoami", {"Cookie": cookie})[0] == 200
    assert ask(managed, "DELETE", "/api/login", {"Cookie": cookie, "X-Shardmq-Page": "1"})[0] == 204
    assert ask(managed, "GET", "/api/whoami", {"Cookie": cookie})[0] == 401


def test_a_session_ends_with_its_password(managed: Broker) -> None:
    with shardmq.connect(managed.url) as connection:
        connection.user_put("leaver", "old", tags=["management"])
        cookie = log_in(managed, "leaver", "old")[1]["set-cookie"].partition(";")[0]
        assert ask(managed, "GET", "/api/whoami", {"Cookie": cookie})[0] == 200
        connection.user_put("leaver", "new", tags=["management"])
    end = time.monotonic() + 20
    while ask(managed, "GET", "/api/whoami", {"Cookie": cookie})[0] != 401:
        assert time.monotonic() < end, "the old password still opens the page"


def test_logins_of_the_page_leave_a_line_without_their_password(managed: Broker) -> None:
    log_in(managed, "guest", "guest")
    log_in(managed, "guest", "guessed")
    log = managed.log.read_text()
    assert "user 'guest' from 127.0.0.1: logged in" in log
    assert "user 'guest' from 127.0.0.1: refused: POST /api/login: 401" in log
    assert "guessed" not in log


def test_of_many_who_guess_passwords_at_once_some_are_told_to_come_back(managed: Broker) -> None:
    many = 60  # a busy machine has answered some before the last is asked for
    barrier = threading.Barrier(many)

    def guess(number: int) -> int:
        barrier.wait()
        return log_in(managed, f"guessed-{number}", "x")[0]

    with ThreadPoolExecutor(many) as pool:
        statuses = list(pool.map(guess, range(many)))
    assert set(statuses) == {401, 503}
    assert statuses.count(401) >= 32
    assert log_in(managed, "guest", "guest")[0] == 200


def test_files_of_the_page_are_packed_and_kept_by_browsers(managed: Broker) -> None:
    status, headers, body = ask(managed, "GET", "/", {"Accept-Encoding": "gzip"})
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert b'<script type="module" src="main.js">' in gzip.decompress(body)
    assert "script-src 'self'" in headers["content-security-policy"]
    assert ask(managed, "GET", "/", {"If-None-Match": headers["etag"]})[0] == 304
    assert ask(managed, "GET", "/main.js")[1]["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/__init__.py", "/../server.py", "/%2e%2e/server.py", "/vendor/", "/nothing.js"])
def test_other_files_are_not_served(managed: Broker, path: str) -> None:
    assert ask(managed, "GET", path)[0] == 404


def test_no_file_of_the_page_leads_to_another_host() -> None:
    from importlib import resources

    page = resources.files("shardmq.management.page")
    for folder in (page, page / "parts", page / "views"):
        for file in folder.iterdir():
            if file.name.endswith((".js", ".html", ".css")):
                assert "https://" not in file.read_text().replace("https://github.com/msgpack/", ""), file.name
