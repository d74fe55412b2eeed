"""Bodies whose fields have other types than they should: each is refused with 400, and nothing meets a bug."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

import pytest

import shardmq
from shardmq.cmd.run.broker import Broker
from shardmq.management.api import ENDPOINTS
from shardmq.management.description.bodies import BODIES
from shardmq.management.own import ENDPOINTS as OWN_ENDPOINTS
from shardmq.management.web.call import NESTING_MAX, as_table
from shardmq.management.web.errors import ApiError
from tests.management.browser import Browser, Refused

DIGITS: Final = "9" * 4301
"""More than Python makes an int of."""


def deep(depth: int = 200) -> Any:
    """A list inside lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


TEXT: Final = ([], {}, 5, True, "\ud800")
FLAG: Final = ([], {}, 5, 1.5, "maybe")
NUMBER: Final = ([], {}, True, 1.5, "many", DIGITS)
FRACTION: Final = ([], {}, True, "half", 2, -0.5)
WORDS: Final = (5, True, {"a": 1}, [5], [[]])
TABLE: Final = (5, True, "x", [1])
ARGUMENTS: Final = (*TABLE, {"x-odd": deep()})
FILLED_TABLE: Final = (*TABLE, [])
NUMBERS: Final = (5, True, "ab", {"a": 1}, ["a"], [[]], [True], [1.5], [-1])
RANGES: Final = (5, True, "x", {"a": 1}, [5], [[]], [[1]], [["a", "b"]], [[1.5, 2]], [[2, 1]])
START: Final = ([], {}, True, 1.5, "some", -1)
ROWS: Final = (5, True, "x", {"a": 1}, [5], ["x"], [[]], [{"name": []}])

Fields = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""By field: a value that makes sense, and values that make none."""

STRANGE: Final[Mapping[type, tuple[Any, ...]]] = {
    str: ("\0", "x" * 300, "x" * 70_000, "\U0001f407{}/%2F", "(?i)[", "((((" * 500),
    dict: (*({"x": deep(depth)} for depth in (20, 200, 900)), {"x" * 300: 1}, {"": {"": None}}, {"CC": 5}),
    list: tuple(deep(depth) for depth in (20, 200, 900)),
}
"""Values by type that may make sense or not."""

PROPERTIES: Final[Fields] = {
    "headers": ({}, TABLE),
    "priority": (1, NUMBER),
    "delivery_mode": (2, NUMBER),
    "timestamp": (1, NUMBER),
    "content_type": ("text/plain", TEXT),
    "expiration": ("9999", ([], {}, 1.5)),
    "user_id": ("guest", TEXT),
}
"""Of messages."""

MESSAGE: Final[Fields] = {
    "routing_key": ("odd", TEXT),
    "payload": ("x", TEXT),
    "payload_encoding": ("string", (*TEXT, "utf-8")),
    "properties": ({}, TABLE),
    **{f"properties.{name}": fields for name, fields in PROPERTIES.items()},
}

POLICY: Final[Fields] = {
    "pattern": ("^odd$", TEXT),
    "definition": ({"max-length": 5}, (*FILLED_TABLE, {"max-length": []}, {"max-length": DIGITS}, {"expires": deep()})),
    "priority": (1, NUMBER),
    "apply-to": ("queues", TEXT),
}

REPUBLISHING: Final[Fields] = {
    **MESSAGE,
    "exchange": ("amq.default", TEXT),
    "position": (0, NUMBER),
    "remove": (False, FLAG),
    "id": ("none", TEXT),
}

SHOVEL: Final = {"src-uri": "amqp://", "src-queue": "odd.in", "dest-uri": "amqp://", "dest-queue": "odd.out"}

FIELDS: Final[Mapping[str, Fields]] = {
    "PUT /exchanges/{vhost}/{exchange}": {
        "type": ("topic", (*TEXT, "round")),
        "durable": (True, FLAG),
        "auto_delete": (False, FLAG),
        "internal": (False, FLAG),
        "arguments": ({}, ARGUMENTS),
    },
    "PUT /queues/{vhost}/{queue}": {
        "durable": (True, FLAG),
        "auto_delete": (False, FLAG),
        "arguments": ({}, (*ARGUMENTS, {"x-max-length": []}, {"x-max-length": DIGITS}, {"x-queue-type": {}})),
    },
    "POST /queues/{vhost}/{queue}/actions": {"action": ("sync", TEXT)},
    "POST /queues/{vhost}/{queue}/get": {
        "count": (1, (*NUMBER, 0)),
        "ackmode": ("ack_requeue_true", TEXT),
        "encoding": ("auto", TEXT),
        "truncate": (1, (*NUMBER, -1)),
    },
    "POST /bindings/{vhost}/e/{source}/{kind:[qe]}/{destination}": {
        "routing_key": ("k", TEXT),
        "arguments": ({}, ARGUMENTS),
    },
    "PUT /vhosts/{vhost}": {
        "description": ("odd", TEXT),
        "tags": (["a"], WORDS),
        "tracing": (False, FLAG),
        "trace_sample": (0.5, FRACTION),
    },
    "PUT /users/{user}": {"tags": (["a"], WORDS), "password": ("p", TEXT)},
    "POST /users/bulk-delete": {"users": (["nobody"], WORDS)},
    "PUT /permissions/{vhost}/{user}": dict.fromkeys(("configure", "write", "read"), ("^a", (*TEXT, "("))),
    "PUT /topic-permissions/{vhost}/{user}": {
        "exchange": ("odd.x", TEXT),
        **dict.fromkeys(("write", "read"), ("^a", (*TEXT, "("))),
    },
    **{f"PUT /{place}/{{vhost}}/{{name}}": POLICY for place in ("policies", "operator-policies")},
    **{f"POST /shardmq/{place}/{{vhost}}/{{name}}/preview": POLICY for place in ("policies", "operator-policies")},
    "PUT /parameters/{component}/{vhost}/{name}": {
        "value": (
            SHOVEL,
            (
                *FILLED_TABLE,
                *({**SHOVEL, "src-uri": odd} for odd in ([], {}, 5, [5])),
                *({**SHOVEL, "src-queue": odd} for odd in ([], {}, 5, True)),
                *({**SHOVEL, "src-queue-args": odd} for odd in TABLE),
                *({**SHOVEL, "dest-publish-properties": odd} for odd in (*TABLE, {"headers": 5}, {"priority": "x"})),
                *({**SHOVEL, "src-delete-after": odd} for odd in (*NUMBER, 0)),
                *({**SHOVEL, "reconnect-delay": odd} for odd in ([], {}, True, "soon", -1)),
                {**SHOVEL, "src-queue-args": {"x": deep()}},
            ),
        )
    },
    "POST /definitions": dict.fromkeys(
        ("vhosts", "users", "permissions", "topic_permissions", "parameters", "policies", "topics", "exchanges"),
        ([], ROWS),
    )
    | dict.fromkeys(("queues", "bindings"), ([], (*ROWS, [{"name": "a", "source": "", "arguments": 5}]))),
    "POST /definitions/{vhost}": dict.fromkeys(("policies", "topics", "exchanges", "queues", "bindings"), ([], ROWS)),
    "POST /exchanges/{vhost}/{exchange}/publish": MESSAGE,
    **{f"PUT /{noun}-limits/{{{noun}}}/{{limit}}": {"value": (1000, NUMBER)} for noun in ("vhost", "user")},
    "PUT /shardmq/topics/{vhost}/{topic}": {"partitions": (1, (*NUMBER, 0))},
    "POST /shardmq/groups/{vhost}/{topic}/{group}/reset": {
        "to": ("earliest", START),
        "partitions": ([0], NUMBERS),
        "dry_run": (True, FLAG),
    },
    "POST /shardmq/queues/{vhost}/{queue}/move": {"to": ("odd.in", TEXT), "limit": (1, (*NUMBER, 0))},
    "POST /shardmq/queues/{vhost}/{queue}/redrive": {
        **dict.fromkeys(("reason", "source", "key", "text", "regex", "message_id", "id"), ("", TEXT)),
        **dict.fromkeys(("header", "json"), (["a"], WORDS)),
        **dict.fromkeys(("older_than", "newer_than", "start"), (0, (*NUMBER, -1))),
        **dict.fromkeys(("limit", "seconds"), (1, (*NUMBER, 0))),
        "ranges": (None, RANGES),
        "dry_run": (True, FLAG),
    },
    "POST /shardmq/queues/{vhost}/{queue}/republish": REPUBLISHING,
    "POST /shardmq/topics/{vhost}/{topic}/republish": {**REPUBLISHING, "partition": (0, NUMBER)},
    "POST /shardmq/hosts/{host}/drain": {"undo": (True, FLAG)},
    "POST /shardmq/shards/{shard}/transfer": {"host": ("h", TEXT)},
    "POST /shardmq/shards/{shard}/move": {"from": ("h", TEXT), "to": ("h", TEXT)},
}
"""Of each endpoint that takes a body, by method and path."""

UNREAD: Final = {
    "PUT /users/{user}": {
        "password_hash",
        "hashing_algorithm",
    },  # beside a password the one is refused; none needs the other
    "POST /shardmq/queues/{vhost}/{queue}/republish": {"partition"},
}
"""Fields that are described and not asked for here."""

PARTS: Final = {
    **dict.fromkeys(("queue", "exchange", "source", "destination", "user", "topic", "group", "name"), "odd"),
    "exchange": "odd.x",
    "source": "odd.x",
    "topic": "odd.t",
    "vhost": "odd",
    "kind:[qe]": "q",
    "limit": "max-connections",
    "component": "shovel",
    "host": "h",
    "shard": "shard-0",
}
"""What parts of paths are called."""


@pytest.fixture(scope="module")
def odd(managed: Broker) -> Iterator[Browser]:
    """An administrator, and a virtual host that has one of everything."""
    with Browser(managed.management_url) as browser:
        browser.put("/vhosts/odd")
        browser.put("/users/odd", {"tags": "", "password": "odd"})
        with shardmq.connect(f"{managed.url.rstrip('/')}/odd") as connection, connection.channel() as channel:
            for queue in ("odd", "odd.in"):
                channel.queue_declare(queue, durable=True)
            channel.exchange_declare("odd.x", "topic", durable=True)
            channel.topic_declare("odd.t", 1)
            channel.group_commit("odd.t", "odd", {0: 0})
        yield browser
        browser.delete("/users/odd")
        browser.delete("/vhosts/odd")


def status_of(browser: Browser, endpoint: str, body: Any) -> int:
    method, path = endpoint.split(" ")
    for name, value in PARTS.items():
        path = path.replace(f"{{{name}}}", value)
    try:
        browser.ask(method, path, body)
    except Refused as refused:
        return refused.status
    return browser.status


def with_field(fields: Fields, field: str, value: Any) -> dict[str, Any]:
    """A body that makes sense, but for one field."""
    body = {name: sample for name, (sample, _) in fields.items() if "." not in name and sample is not None}
    table, dot, inner = field.partition(".")
    return {**body, table: {inner: value}} if dot else {**body, field: value}


def test_every_body_is_asked_for_field_by_field() -> None:
    taken = {f"{each.method} {each.path}": each for each in (*ENDPOINTS, *OWN_ENDPOINTS) if each.body is not None}
    assert taken.keys() == FIELDS.keys()
    for place, endpoint in taken.items():
        described = BODIES.get(endpoint.path, endpoint.body)
        names = set(get_type_hints(described)) if isinstance(described, type) else set()
        assert names - UNREAD.get(place, set()) - FIELDS[place].keys() == set(), place


@pytest.mark.parametrize("endpoint", FIELDS)
def test_a_field_of_another_type_is_refused(odd: Browser, endpoint: str) -> None:
    fields = FIELDS[endpoint]
    wrong = []
    for field, (_, values) in fields.items():
        for value in values:
            status = status_of(odd, endpoint, with_field(fields, field, value))
            wrong += [f"{field} = {value!r:.60}: {status}"] if status != 400 else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("endpoint", FIELDS)
def test_texts_and_tables_of_any_size_meet_no_bug(odd: Browser, endpoint: str) -> None:
    fields = FIELDS[endpoint]
    wrong = []
    for field, (sample, _) in fields.items():
        for value in STRANGE.get(type(sample), ()):
            status = status_of(odd, endpoint, with_field(fields, field, value))
            wrong += [f"{field} = {value!r:.60}: {status}"] if status >= 500 else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("value", ["x", 5, None, []])
def test_a_cluster_id_in_the_properties_of_a_copy_is_left_out(odd: Browser, value: object) -> None:
    body = {"position": 10**6, "properties": {"cluster_id": value}}
    assert status_of(odd, "POST /shardmq/queues/{vhost}/{queue}/republish", body) == 404


def test_a_body_that_nests_too_deep_is_refused_wherever_it_ends() -> None:
    for value in (deep(NESTING_MAX - 1), {"b": deep(NESTING_MAX - 2)}, [[]] * NESTING_MAX, "[" * 2 * NESTING_MAX):
        assert as_table(json.dumps({"a": value}).encode()) == {"a": value}
    for value in (deep(NESTING_MAX), {"b": deep(NESTING_MAX - 1)}):
        with pytest.raises(ApiError, match=f"nests deeper than {NESTING_MAX} levels"):
            as_table(json.dumps({"a": value}).encode())
