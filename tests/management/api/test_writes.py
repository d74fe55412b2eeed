"""What clients change over the HTTP API, over real processes."""

import base64
import json
from typing import Any

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.errors import AccessRefused, ShardmqError
from tests.management.browser import Browser, Refused


def refused(browser: Browser, method: str, path: str, body: object = None) -> tuple[int, str | None]:
    with pytest.raises(Refused) as error:
        browser.ask(method, path, body)
    return error.value.status, error.value.error


def ask_until_lost(channel: shardmq.Channel) -> None:
    while True:
        channel.queue_declare("watched", passive=True)


def test_a_queue_is_made_found_and_deleted(admin: Browser) -> None:
    body = {"auto_delete": "false", "durable": "true", "arguments": {"x-max-length": 5}, "node": "rabbit@here"}
    assert admin.put("/queues/%2F/made", body) == 201
    assert admin.put("/queues/%2F/made", body) == 204
    assert refused(admin, "PUT", "/queues/%2F/made", {"durable": False}) == (400, "bad_request")
    assert admin.put("/queues/%2F/plain") == 201
    assert admin.put("/queues/%2F/plain", {"arguments": []}) == 204
    found = admin.get("/queues/%2F/made")
    assert (found["durable"], found["auto_delete"], found["arguments"]) == (True, False, {"x-max-length": 5})
    admin.post("/exchanges/%2F/amq.default/publish", {"routing_key": "made", "payload": "x", "properties": {}})
    assert refused(admin, "DELETE", "/queues/%2F/made?if-empty=true") == (400, "bad_request")
    assert admin.delete("/queues/%2F/made/contents") == 204
    assert admin.delete("/queues/%2F/made?if-empty=true&if-unused=true") == 204
    assert refused(admin, "DELETE", "/queues/%2F/made") == (404, "not_found")


def test_an_exchange_is_made_found_and_deleted(admin: Browser) -> None:
    body = {"type": "topic", "durable": "true", "internal": "false", "arguments": {}}
    assert [admin.put("/exchanges/%2F/x", body), admin.put("/exchanges/%2F/x", body)] == [201, 204]
    assert admin.get("/exchanges/%2F/x")["type"] == "topic"
    assert admin.get("/exchanges/%2F/amq.default")["name"] == ""
    assert refused(admin, "PUT", "/exchanges/%2F/x", {"type": "fanout"}) == (400, "bad_request")
    assert refused(admin, "PUT", "/exchanges/%2F/amq.mine", body) == (401, "not_authorised")
    assert admin.delete("/exchanges/%2F/x?if-unused=true") == 204
    assert refused(admin, "DELETE", "/exchanges/%2F/x") == (404, "not_found")


@pytest.mark.parametrize(
    ("key", "arguments", "name"),
    [
        ("", {}, "~"),
        ("a.b", {}, "a.b"),
        ("a/b ~%", {}, "a%2Fb%20%7E%25"),
        ("k", {"x-match": "all", "n": 1}, "k~"),
        ("", {"x": True}, "~"),
    ],
)
def test_a_binding_has_a_place_of_its_own(admin: Browser, key: str, arguments: dict[str, object], name: str) -> None:
    admin.put("/queues/%2F/bound")
    between = "/bindings/%2F/e/amq.headers/q/bound"
    admin.post(between, {"routing_key": key, "arguments": arguments})
    assert admin.status == 201
    assert admin.headers["location"].startswith("../../../../%2F/e/amq.headers/q/bound/")
    last = admin.headers["location"].rpartition("/")[2]
    (found,) = admin.get(between)
    assert (found["routing_key"], found["arguments"], found["destination_type"]) == (key, arguments, "queue")
    assert found["properties_key"].startswith(name)
    assert admin.get(f"{between}/{last}") == found
    assert found in admin.get("/bindings/%2F")
    assert found in admin.get("/exchanges/%2F/amq.headers/bindings/source")
    assert admin.delete(f"{between}/{last}") == 204
    assert admin.get(between) == []
    assert refused(admin, "DELETE", f"{between}/{last}") == (404, "not_found")


def test_exchanges_are_bound_to_exchanges(admin: Browser) -> None:
    between = "/bindings/%2F/e/amq.topic/e/amq.fanout"
    admin.post(between, {"routing_key": "#"})
    assert admin.get(between)[0]["destination_type"] == "exchange"
    assert admin.get("/exchanges/%2F/amq.fanout/bindings/destination") == admin.get(between)
    assert admin.delete(f"{between}/%23") == 204


def test_messages_are_published_and_got(managed: Broker, admin: Browser) -> None:
    admin.put("/queues/%2F/letters")
    publish = "/exchanges/%2F/amq.default/publish"
    properties = {"content_type": "text/plain", "headers": {"n": 1}, "delivery_mode": "2", "priority": 3}
    body = {"properties": properties, "routing_key": "letters", "payload": "hällo", "payload_encoding": "string"}
    assert admin.post(publish, body) == {"routed": True}
    raw = base64.b64encode(b"\xff\0").decode()
    body = {"properties": [], "routing_key": "letters", "payload": raw, "payload_encoding": "base64"}
    assert admin.post(publish, body) == {"routed": True}
    assert admin.post(publish, {**body, "routing_key": "nowhere"}) == {"routed": False}
    assert refused(admin, "POST", "/exchanges/%2F/none/publish", body) == (404, "not_found")
    assert refused(admin, "POST", publish, {**body, "payload": "?"}) == (400, "bad_request")
    assert refused(admin, "POST", publish, {**body, "properties": {"nonsense": 1}}) == (400, "bad_request")

    get = "/queues/%2F/letters/get"
    first, second = admin.post(get, {"count": "5", "ackmode": "ack_requeue_true", "encoding": "auto"})
    assert first["properties"] == {**properties, "delivery_mode": 2}
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("hällo", "string", 6)
    assert (first["exchange"], first["routing_key"], first["message_count"]) == ("", "letters", 1)
    assert (second["payload"], second["payload_encoding"], second["message_count"]) == (raw, "base64", 0)
    (again,) = admin.post(get, {"count": 1, "requeue": "true", "truncate": 1, "encoding": "base64"})
    assert (again["redelivered"], base64.b64decode(again["payload"]), again["payload_bytes"]) == (True, b"h", 6)
    assert len(admin.post(get, {"count": 5, "ackmode": "ack_requeue_false"})) == 2
    assert admin.post(get, {"count": 5, "ackmode": "ack_requeue_false"}) == []
    assert refused(admin, "POST", get, {"count": 0}) == (400, "bad_request")
    assert refused(admin, "POST", get, {"ackmode": "keep"}) == (400, "bad_request")
    with shardmq.connect(managed.url) as connection:
        assert connection.channel().basic_get("letters") is None


def test_virtual_hosts_users_permissions_and_limits(managed: Broker, admin: Browser) -> None:
    assert [admin.put("/vhosts/moon", {"description": "far", "tags": "cold,dark"}), admin.put("/vhosts/moon")] == [
        201,
        204,
    ]
    assert admin.put("/vhosts/moon", {"description": "far", "tags": "cold,dark"}) == 204
    assert admin.get("/vhosts/moon")["tags"] == ["cold", "dark"]
    assert admin.put("/users/ann", {"password": "sesame", "tags": "management, policymaker"}) == 201
    assert admin.get("/users/ann")["tags"] == ["management", "policymaker"]
    assert "ann" in [row["name"] for row in admin.get("/users/without-permissions")]
    allowed = {"configure": ".*", "write": "^a", "read": ""}
    assert [admin.put("/permissions/moon/ann", allowed) for _ in range(2)] == [201, 204]
    assert admin.get("/permissions/moon/ann") == {"user": "ann", "vhost": "moon", **allowed}
    assert admin.get("/users/ann/permissions") == [admin.get("/permissions/moon/ann")]
    assert refused(admin, "PUT", "/permissions/moon/ann", {"read": ""}) == (400, "bad_request")
    assert refused(admin, "PUT", "/permissions/moon/nobody", allowed) == (404, "not_found")
    with Browser(managed.management_url, "ann", "sesame") as ann:
        assert ann.put("/queues/moon/hers") == 201
        assert refused(ann, "PUT", "/queues/%2F/hers") == (401, "not_authorised")
        assert refused(ann, "PUT", "/vhosts/hers") == (401, "not_authorised")
        assert admin.put("/users/ann", {"password": "other", "tags": ["management"]}) == 204
        assert refused(ann, "GET", "/whoami") == (401, "not_authorized")
    for noun, name, limit in (("vhost", "moon", "max-queues"), ("user", "ann", "max-channels")):
        assert admin.put(f"/{noun}-limits/{name}/{limit}", {"value": "7"}) == 204
        assert admin.get(f"/{noun}-limits/{name}") == [{noun: name, "value": {limit: 7}}]
        assert admin.get(f"/{noun}-limits") == admin.get(f"/{noun}-limits/{name}")
        assert admin.delete(f"/{noun}-limits/{name}/{limit}") == 204
        assert admin.get(f"/{noun}-limits") == []
    assert refused(admin, "PUT", "/vhost-limits/moon/max-moons", {"value": 1}) == (400, "bad_request")
    assert admin.delete("/permissions/moon/ann") == 204
    admin.put("/users/ben", {"tags": [], "password_hash": ""})
    admin.post("/users/bulk-delete", {"users": ["ann", "ben", "nobody"]})
    assert [row["name"] for row in admin.get("/users")] == ["guest"]
    assert admin.delete("/vhosts/moon") == 204
    assert refused(admin, "GET", "/queues/moon") == (404, "not_found")


def test_tracing_is_switched_as_in_rabbitmq_and_leaves_the_rest_of_a_virtual_host(admin: Browser) -> None:
    def traced() -> tuple[bool, float, str]:
        row = admin.get("/vhosts/moon")
        return row["tracing"], row["trace_sample"], row["description"]

    assert admin.put("/vhosts/moon", {"description": "far", "tracing": True}) == 201
    assert traced() == (True, 1.0, "far")
    for body, told in (
        ({"trace_sample": 0.25}, (True, 0.25)),
        ({"tracing": "true"}, (True, 0.25)),
        ({}, (True, 0.25)),
        ({"tracing": False}, (False, 0.0)),
        ({"trace_sample": 1}, (True, 1.0)),
        ({"trace_sample": 0}, (False, 0.0)),
    ):
        assert admin.put("/vhosts/moon", body) == 204
        assert traced() == (*told, "far")
    for bad in ({"tracing": "perhaps"}, {"trace_sample": 2}, {"trace_sample": "all"}, {"trace_sample": True}):
        assert refused(admin, "PUT", "/vhosts/moon", bad) == (400, "bad_request")
    admin.delete("/vhosts/moon")


def test_definitions_go_out_and_in(admin: Browser) -> None:
    admin.put("/vhosts/copy")
    admin.put("/queues/copy/kept", {"durable": True})
    whole = admin.get("/definitions?download=all.json")
    assert "filename*=UTF-8''all.json" in admin.headers["content-disposition"]
    part = admin.get("/definitions/copy")
    assert [row["name"] for row in part["queues"]] == ["kept"]
    assert "vhost" not in part["queues"][0]
    admin.delete("/vhosts/copy")
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="d.json"\r\n\r\n%b\r\n--b--\r\n'
    multipart = {"Content-Type": "multipart/form-data; boundary=b"}
    admin.ask("POST", "/definitions", form % json.dumps(whole).encode(), multipart)
    assert admin.status == 204
    admin.delete("/queues/copy/kept")
    admin.post("/definitions/copy", part)
    assert admin.get("/queues/copy/kept")["durable"]
    for bad in (b"--b\r\nnonsense", b"--b--\r\n", form % b"{"):
        with pytest.raises(Refused) as error:
            admin.ask("POST", "/definitions", bad, multipart)
        assert error.value.status == 400
    assert refused(admin, "POST", "/definitions", {"queues": [{"name": 1}]}) == (400, "bad_request")
    admin.delete("/vhosts/copy")


@pytest.mark.parametrize("more", [{}, {"tags": None}])
def test_a_user_keeps_its_tags_where_a_request_names_none(admin: Browser, more: dict[str, object]) -> None:
    admin.put("/users/tagged", {"password": "old", "tags": "monitoring"})
    with pytest.raises(Refused, match="tags_not_present: name all tags") as error:
        admin.put("/users/tagged", {"password": "new", **more})
    assert error.value.status == 400
    assert admin.get("/users/tagged")["tags"] == ["monitoring"]
    assert admin.put("/users/tagged", {"password": "new", "tags": ""}) == 204
    assert admin.get("/users/tagged")["tags"] == []
    admin.delete("/users/tagged")


def test_connections_are_seen_and_closed(managed: Broker, admin: Browser) -> None:
    with shardmq.connect(managed.url, recovery=None) as connection:
        channel = connection.channel()
        channel.queue_declare("watched")
        channel.basic_consume("watched", print)
        (consumer,) = admin.get("/consumers/%2F")
        assert consumer["queue"] == {"name": "watched", "vhost": "/"}
        row = admin.get(f"/connections/{consumer['channel_details']['connection_name']}")
        assert row["client_properties"]["product"] == "shardmq-python"
        assert (row["auth_mechanism"], row["timeout"], row["ssl_cipher"]) == ("PLAIN", 60, None)
        of_guest, of_all = admin.get("/connections/username/guest"), admin.get("/connections")
        assert [each["name"] for each in of_guest] == [each["name"] for each in of_all]  # what they count goes on
        assert {each["user"] for each in of_guest} == {"guest"}
        assert admin.get(f"/connections/{row['name']}/channels")[0]["consumer_count"] == 1
        assert admin.get("/queues/%2F/watched")["consumer_details"] == [{**consumer, "unacked": 0}]
        name = consumer["channel_details"]["name"].replace(" ", "%20")
        assert admin.get(f"/channels/{name}")["consumer_details"] == [consumer]
        admin.ask("DELETE", f"/connections/{row['name']}", headers={"X-Reason": "enough"})
        with pytest.raises(ShardmqError, match="enough"):
            ask_until_lost(channel)
    assert refused(admin, "DELETE", "/connections/none") == (404, "not_found")


def test_users_close_their_own_connections_and_nobody_elses(managed: Broker, admin: Browser) -> None:
    admin.put("/users/closer", {"password": "closer's", "tags": "management"})
    admin.put("/permissions/%2F/closer", {"configure": ".*", "write": ".*", "read": ".*"})
    own = f"shardmq://closer:closer%27s@127.0.0.1:{managed.port}/"
    with (
        shardmq.connect(managed.url, recovery=None) as others,
        shardmq.connect(own, recovery=None) as connection,
        Browser(managed.management_url, "closer", "closer's") as closer,
        shardmq.connect(own, administrative=True) as asking,
    ):
        channel = connection.channel()
        channel.queue_declare("watched")
        (row,) = closer.get("/connections/username/closer")
        theirs = [each["name"] for each in admin.get("/connections") if each["user"] == "guest"]
        assert closer.delete(f"/connections/{row['name']}") == 204
        with pytest.raises(ShardmqError, match="management"):
            ask_until_lost(channel)
        for name in (*theirs, "none"):
            with pytest.raises(AccessRefused, match="none of theirs"):
                asking.connection_expel(name)
        others.channel().queue_declare("watched", passive=True)
    admin.delete("/users/closer")


def test_a_hash_that_is_made_lets_its_password_in(managed: Broker, admin: Browser) -> None:
    made = admin.get("/auth/hash_password/s%2Fp%20%C3%A4")["ok"]
    admin.put("/users/hashed", {"password_hash": made, "tags": "management"})
    with Browser(managed.management_url, "hashed", "s/p ä") as hashed:
        assert hashed.get("/whoami")["name"] == "hashed"
    admin.delete("/users/hashed")


def test_top_tells_the_processes_by_memory(admin: Browser) -> None:
    found = admin.get(f"/top/{admin.get('/overview')['node']}")
    memory = [row["memory"] for row in found["processes"]]
    assert found["row_count"] == len(memory) >= 4
    assert memory == sorted(memory, reverse=True)


def test_each_change_leaves_a_line_with_who_and_what_and_no_secret(managed: Broker, admin: Browser) -> None:
    admin.put("/users/audited", {"password": "never-told", "tags": ""})
    admin.delete("/users/audited")
    log = managed.last_words()
    for what in ("PUT /api/users/audited: 201", "DELETE /api/users/audited: 204"):
        assert f"user 'guest' from 127.0.0.1: {what}" in log
    assert "never-told" not in log


def test_refused_changes_and_logins_leave_a_line(managed: Broker, admin: Browser) -> None:
    assert refused(admin, "DELETE", "/queues/%2F/nowhere")[0] == 404
    with Browser(managed.management_url, "guest", "guessed") as guesser:
        assert refused(guesser, "GET", "/whoami")[0] == 401
    log = managed.log.read_text()
    for what in ("DELETE /api/queues/%2F/nowhere: 404", "GET /api/whoami: 401"):
        assert f"user 'guest' from 127.0.0.1: refused: {what}" in log
    assert "guessed" not in log


def test_logins_are_counted_by_protocol_and_processes_tell_their_memory(managed: Broker, admin: Browser) -> None:
    node = admin.get("/overview")["node"]
    counted = {row["protocol"]: row for row in admin.get(f"/auth/attempts/{node}")}
    assert counted.keys() == {"amqp091", "http", "shardmq"}
    assert counted["http"]["auth_attempts_succeeded"] >= 1
    for row in counted.values():
        assert row["auth_attempts"] == row["auth_attempts_succeeded"] + row["auth_attempts_failed"]
    assert admin.get(f"/auth/attempts/{node}/source") == []
    assert admin.ask("DELETE", f"/auth/attempts/{node}") is None
    with shardmq.connect(managed.url), Browser(managed.management_url, "guest", "guessed") as guesser:
        assert refused(guesser, "GET", "/whoami")[0] == 401
    counted = {row["protocol"]: row for row in admin.get(f"/auth/attempts/{node}")}
    assert [counted[name]["auth_attempts_succeeded"] for name in ("amqp091", "shardmq")] == [0, 1]
    assert counted["http"]["auth_attempts_failed"] == 1
    assert refused(admin, "DELETE", "/auth/attempts/nobody/source")[0] == 404
    memory = admin.get(f"/nodes/{node}/memory")["memory"]
    assert memory["total"]["rss"] == sum(memory[name] for name in memory.keys() - {"total", "strategy"}) > 1 << 20


def totals(churn: dict[str, Any]) -> dict[str, int]:
    """Without rates: those are of samples, in which what was done before comes later."""
    return {name: number for name, number in churn.items() if not name.endswith("_details")}


def test_connections_of_the_management_process_are_not_among_those_of_clients(managed: Broker, admin: Browser) -> None:
    with shardmq.connect(managed.url, properties={"connection_name": "billing"}) as connection:
        own = connection.channel()
        own.queue_declare("counted", durable=True)
        admin.get("/shardmq/queues/%2F/counted/messages")  # over a channel in "/" of the management process
        before = admin.get("/overview")
        assert {name: before["object_totals"][name] for name in ("connections", "channels", "consumers")} == {
            "connections": len(admin.get("/connections")),
            "channels": len(admin.get("/channels")),
            "consumers": len(admin.get("/consumers")),
        }
        (name,) = [row["client_properties"].get("connection_name") for row in admin.get("/connections")]
        assert name == "billing"
        with Browser(managed.management_url) as other:
            assert totals(other.get("/overview")["churn_rates"]) == totals(before["churn_rates"])
        shown = {row["protocol"] for row in connection.topology("connections")}
        assert shown == {"shardmq", "HTTP"}


def test_health_is_checked_with_and_without_a_login(managed: Broker, admin: Browser) -> None:
    port = managed.port
    for check in (
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "node-is-quorum-critical",
        f"port-listener/{port}",
        "protocol-listener/amqp,http",
    ):
        assert admin.get(f"/health/checks/{check}")["status"] == "ok"
    with pytest.raises(Refused, match="No active listener") as failed:
        admin.get("/health/checks/port-listener/1")
    assert failed.value.status == 503
    with Browser(managed.management_url, "") as nobody:
        for check in ("is-in-service", "below-node-connection-limit", "ready-to-serve-clients"):
            assert nobody.get(f"/health/checks/{check}") == {"status": "ok"}
        assert refused(nobody, "GET", "/health/checks/alarms") == (401, "not_authorized")
    assert admin.get("/aliveness-test/%2F") == {"status": "ok"}
    assert admin.get("/healthchecks/node")["status"] == "ok"
    assert refused(admin, "POST", "/rebalance/queues") == (501, "not_implemented")


@pytest.mark.parametrize("body", [b"{", b"[]", b"1", b"\xff", b"[" * 100_000, b'{"durable": 7}', b"x" * 2_000_000])
def test_a_body_that_makes_no_sense_is_refused(managed: Broker, body: bytes) -> None:
    with Browser(managed.management_url) as browser:
        status, _ = refused(browser, "PUT", "/queues/%2F/none", body)
        assert status in (400, 413)


def test_every_change_leaves_a_line_who_from_where_and_what(managed: Broker, admin: Browser) -> None:
    admin.put("/queues/%2F/audited%20queue")
    admin.delete("/queues/%2F/audited%20queue")
    assert "user 'guest' from 127.0.0.1: DELETE /api/queues/%2F/audited%20queue: 204" in managed.log.read_text()
