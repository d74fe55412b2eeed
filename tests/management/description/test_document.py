"""The description of the HTTP API holds for what a broker answers, and requests made from it are never a bug."""

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import jsonschema_rs
import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import shardmq
from shardmq.cmd.run.broker import Broker
from tests.management.browser import Browser, Refused

EXAMPLES: Final = 7
"""Requests of each operation that the fuzz makes; in one of two, the path names what is there."""

FEW_EXAMPLES: Final = 1
"""Of them, those that a user with few rights asks for, too, and a cookie alone."""

RESERVED: Final = re.compile("Needs the tag (policymaker|monitoring|administrator)")
"""What the description says of operations that a user with few rights may not ask for."""

THERE: Final = {
    "vhost": "/",
    "queue": "described",
    "exchange": "described.x",
    "source": "described.x",
    "destination": "described",
    "kind": "q",
    "key": "k",
    "user": "described",
    "topic": "described.t",
    "group": "described.g",
    "name": "described",
    "message": "described",
    "limit": "max-connections",
    "protocols": "amqp",
    "within": "1",
    "unit": "days",
    "component": "shovel",
    "password": "secret",
}
"""What the parts of paths are called, where it is there."""


@pytest.fixture(scope="module")
def described(managed: Broker) -> Iterator[dict[str, Any]]:
    """The description, of a broker that has one of everything."""
    with shardmq.connect(managed.url) as connection, Browser(managed.management_url) as browser:
        channel = connection.channel()
        channel.queue_declare("described")
        channel.exchange_declare("described.x", "topic")
        channel.queue_bind("described", "described.x", "k")
        channel.topic_declare("described.t", 1)
        channel.group_commit("described.t", "described.g", {0: 0})
        channel.transaction("described").publish("", "described", b"staged")
        for _ in range(3):
            channel.basic_publish("described.x", "k", b"{}")
        connection.user_put("described", "its", tags=["monitoring"])
        connection.permission_put("described", "/", ".*", ".*", ".*")
        browser.put("/topic-permissions/%2F/described", {"exchange": "described.x", "write": ".*", "read": ".*"})
        for place in ("policies", "operator-policies"):
            browser.put(f"/{place}/%2F/described", {"pattern": "^described$", "definition": {"max-length": 100}})
        for noun, name in (("vhost", "%2F"), ("user", "described")):
            browser.put(f"/{noun}-limits/{name}/max-connections", {"value": 1000})
        shovel = {
            "src-uri": "amqp://",
            "src-queue": "described.in",
            "dest-uri": "amqp://",
            "dest-queue": "described.out",
        }
        connection.parameter_put("/", "shovel", "described", shovel)
        channel.basic_consume("described", lambda _message: None)
        yield browser.get("/openapi.json")


def schema_of(described: dict[str, Any], schema: dict[str, Any]) -> Any:
    return jsonschema_rs.Draft202012Validator({**schema, "components": described["components"]})


def test_the_description_is_openapi_3_1_and_every_operation_has_a_name_of_its_own(described: dict[str, Any]) -> None:
    assert described["openapi"] == "3.1.0"
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names)) > 100
    for operation in operations:
        for response in operation["responses"].values():
            for content in response.get("content", {}).values():
                schema_of(described, content["schema"])


def test_it_is_read_without_a_login_and_by_people_too(managed: Broker) -> None:
    for path, kind in (("openapi.json", "application/json"), ("index.html", "text/html; charset=utf-8")):
        answer = requests.get(f"{managed.management_url}api/{path}", timeout=10)
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, kind)
        assert "/api/queues/{vhost}/{queue}" in answer.text


def test_every_answer_has_the_shape_that_the_description_promises(
    described: dict[str, Any], admin: Browser, managed: Broker
) -> None:
    there = {
        **THERE,
        "node": admin.get("/overview")["node"],
        "connection": admin.get("/connections")[0]["name"],
        "channel": admin.get("/channels")[0]["name"],
        "port": str(managed.port),
    }
    checked, empty = 0, []
    for path, operations in described["paths"].items():
        if "get" not in operations or not path.startswith("/api/"):
            continue
        filled = path.format_map({name: quote(value, safe="") for name, value in there.items()})
        try:
            answer = admin.get(filled.removeprefix("/api")) if "index.html" not in path else ""
        except Refused as refused:
            assert "501" in operations["get"]["responses"], f"{path}: {refused}"
            continue
        promised = operations["get"]["responses"]["200"].get("content", {}).get("application/json")
        if promised is None:
            continue
        errors = [f"{path}: {error}" for error in schema_of(described, promised["schema"]).iter_errors(answer)]
        assert errors == []
        checked += 1
        empty += [path] if answer == [] else []
    assert checked > 60
    nouns = ("queues", "exchanges", "bindings", "connections", "channels", "consumers", "policies", "topic-permissions")
    assert {f"/api/{noun}" for noun in nouns}.isdisjoint(empty)


def answer_of(described: dict[str, Any], path: str, method: str, status: str) -> Any:
    """The schema of an answer."""
    return described["paths"][path][method]["responses"][status]["content"]["application/json"]["schema"]


def test_health_checks_and_our_own_endpoints_are_described_field_by_field(
    described: dict[str, Any], admin: Browser, managed: Broker
) -> None:
    own = [path for path in described["paths"] if path.startswith(("/api/shardmq/", "/api/health"))]
    loose = [
        f"{method} {path}"
        for path in own
        for method, operation in described["paths"][path].items()
        for response in operation["responses"].values()
        for content in response.get("content", {}).values()
        if '{"type": "object"}' in json.dumps(content["schema"])
    ]
    assert loose == []
    for path in ("findings?after=0", "transactions", "groups", "topics", "processes"):
        rows = admin.get(f"/shardmq/{path}")
        promised = answer_of(described, f"/api/shardmq/{path.partition('?')[0]}", "get", "200")
        assert [*schema_of(described, promised).iter_errors(rows)] == []
        assert rows
    preview = admin.post("/shardmq/policies/%2F/p/preview", {"pattern": "^described", "definition": {"max-length": 3}})
    promised = answer_of(described, "/api/shardmq/policies/{vhost}/{name}/preview", "post", "200")
    assert preview
    assert schema_of(described, promised).is_valid(preview)
    reset = admin.post("/shardmq/groups/%2F/described.t/described.g/reset", {"to": "earliest", "dry_run": True})
    promised = answer_of(described, "/api/shardmq/groups/{vhost}/{topic}/{group}/reset", "post", "200")
    assert [*schema_of(described, promised).iter_errors(reset)] == []
    admin.put("/queues/%2F/described.spare", {})
    for what, body in (("move", {"to": "described", "limit": 1}), ("redrive", {"dry_run": True})):
        answer = admin.post(f"/shardmq/queues/%2F/described.spare/{what}", body)
        promised = answer_of(described, f"/api/shardmq/queues/{{vhost}}/{{queue}}/{what}", "post", "200")
        assert [*schema_of(described, promised).iter_errors(answer)] == []
    failing = {"port-listener/1": "port-listener/{port}", "protocol-listener/mqtt": "protocol-listener/{protocols}"}
    for path, place in failing.items():
        url = f"{managed.management_url}api/health/checks/{path}"
        answer = requests.get(url, auth=("guest", "guest"), timeout=10)
        promised = answer_of(described, f"/api/health/checks/{place}", "get", "503")["anyOf"][0]
        assert answer.status_code == 503
        assert schema_of(described, promised).is_valid(answer.json())
        assert "missing" in described["components"]["schemas"][promised["$ref"].rpartition("/")[2]]["properties"]


def test_a_page_of_a_list_has_the_shape_that_the_description_promises(
    described: dict[str, Any], admin: Browser
) -> None:
    for path in ("queues", "connections", "exchanges", "users"):
        promised = described["paths"][f"/api/{path}"]["get"]["responses"]["200"]["content"]["application/json"]
        assert schema_of(described, promised["schema"]).is_valid(admin.get(f"/{path}?page=1&page_size=2"))


def operations_of(described: dict[str, Any]) -> list[Any]:
    """What can be asked for; what leaves less to ask for comes last."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the library itself
        import schemathesis

        api = schemathesis.openapi.from_dict(described)
        return sorted([found.ok() for found in api.get_all_operations()], key=ends)


def test_whatever_is_asked_is_answered_never_by_a_bug_and_only_to_whom_it_is_allowed(
    described: dict[str, Any], managed: Broker, admin: Browser
) -> None:
    admin.put("/users/few", {"password": "few", "tags": "management"})
    login = {"username": "few", "password": "few"}
    with requests.Session() as guest, requests.Session() as few, requests.Session() as cookie:
        guest.trust_env = few.trust_env = cookie.trust_env = False
        guest.auth, few.auth = ("guest", "guest"), ("few", "few")
        for operation in operations_of(described):
            if few.get(f"{managed.management_url}api/whoami", timeout=10).status_code != 200:  # they were deleted
                admin.put("/users/few", {"password": "few", "tags": "management"})
            if cookie.get(f"{managed.management_url}api/whoami", timeout=10).status_code != 200:
                assert cookie.post(f"{managed.management_url}api/login", data=login, timeout=10).ok
            fuzz(operation, (guest, few, cookie), managed.management_url)
        assert guest.get(f"{managed.management_url}api/whoami", timeout=10).json()["name"] == "guest"


def ends(operation: Any) -> tuple[bool, bool]:
    """What leaves less to ask for comes last."""
    return operation.method.upper() == "DELETE", "{limit}" in operation.path


def fuzz(operation: Any, sessions: tuple[requests.Session, requests.Session, requests.Session], url: str) -> None:
    guest, few, cookie = sessions
    asked: list[bool] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), is_there=st.booleans())
    def ask(case: Any, is_there: bool) -> None:
        if is_there:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = quote(THERE.get(name, "1"), safe="")
        if len(asked) < FEW_EXAMPLES:
            asked.append(is_there)
            made = case.headers, case.cookies  # logins of nobody
            case.headers, case.cookies = type(case.headers)(), {}
            status = answered(operation, case, few, url)
            assert status == 401 or not RESERVED.search(operation.definition.raw["description"]), case
            status = answered(operation, case, cookie, url)
            assert status == 403 or operation.method.upper() in ("GET", "HEAD"), case
            case.headers, case.cookies = made
        answered(operation, case, guest, url)

    ask()


def answered(operation: Any, case: Any, session: requests.Session, url: str) -> int:
    """The status of an answer, which is in the shape that it has to have."""
    answer = case.call(base_url=url.rstrip("/"), session=session, timeout=20)
    where = f"{answer.request.method} {answer.request.url} {answer.request.body!r:.500}: {answer.text:.500}"
    promised = operation.definition.raw["responses"]
    assert answer.status_code < 500 or str(answer.status_code) in promised, where
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        assert {"reason"} <= answer.json().keys(), where
    return int(answer.status_code)


@pytest.mark.parametrize("value", [b"1" + b"0" * 30, b"-9223372036854775809", b'"\\ud800"'])
def test_numbers_and_texts_that_no_message_can_have_are_refused(admin: Browser, value: bytes) -> None:
    for path, body in (
        ("PUT /queues/%2F/odd", b'{"arguments": {"x-odd": %s}}'),
        ("POST /definitions", b'{"users": [%s]}'),
    ):
        with pytest.raises(Refused) as refused:
            admin.ask(*path.split(), body % value)
        assert refused.value.status == 400
