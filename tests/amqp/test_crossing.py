"""Messages cross between pika and native clients, through real queues, with everything that they had."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.cmd.main import run
from shardmq.cmd.run.broker import Broker
from shardmq.protocol.amqp.tables import wrapped
from tests.protocol.amqp.property_lists import EVERY_TYPE

SECONDS: Final = 60.0
NOON: Final = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)

HEADERS: Final[dict[str, Any]] = {
    "bool": True,
    "int": -5,
    "long": 1 << 40,
    "decimal": Decimal("-12.50"),
    "text": "grün",
    "none": None,
    "bytes": b"\x00\xff",
    "table": {"deep": {"er": [Decimal("1.5")]}},
    "list": [1, "two", [3], {"four": False}],
}

PROPERTIES: Final[dict[str, Any]] = {
    "content_type": "text/csv",
    "content_encoding": "gzip",
    "priority": 7,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "600000",
    "message_id": "m",
    "timestamp": 1_700_000_000,
    "type": "t",
    "user_id": "guest",
    "app_id": "a",
}
"""Every property that both protocols have, but for headers and how the message is delivered."""

LETTERS: Final = b"\x20\x00" + wrapped(b"", EVERY_TYPE)
"""A property list with headers of every type there is."""


class Raw(pika.BasicProperties):
    """A property list as it is in bytes, which pika would write in its own way, and read without its types."""

    def __init__(self, raw: bytes = b"") -> None:
        super().__init__()
        self.raw = raw

    def encode(self) -> list[bytes]:
        return [self.raw]

    def decode(self, encoded: bytes, offset: int = 0) -> "Raw":
        self.raw = bytes(encoded[offset:])
        return self


@pytest.fixture
def reads_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that pika is given have `Raw` properties."""
    monkeypatch.setitem(pika.spec.props, pika.BasicProperties.INDEX, Raw)


@pytest.fixture
def publishing(channel: BlockingChannel) -> BlockingChannel:
    channel.confirm_delivery()
    return channel


@pytest.fixture
def here(native: shardmq.Connection) -> Iterator[shardmq.Channel]:
    with native.channel() as channel:
        yield channel


def taken(channel: BlockingChannel, queue: str) -> tuple[Any, Any, bytes]:
    """The next message, by consuming."""
    for method, properties, body in channel.consume(queue, inactivity_timeout=SECONDS):
        assert method is not None, "nothing came"
        channel.basic_ack(method.delivery_tag)
        channel.cancel()
        return method, properties, body
    raise AssertionError("consuming ended")


def test_native_clients_read_every_property_that_pika_sends_by_every_way_of_reading(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    sent_headers = HEADERS | {"time": NOON.replace(tzinfo=None)}
    properties = pika.BasicProperties(**PROPERTIES, headers=sent_headers, delivery_mode=2, cluster_id="reserved")
    expected = shardmq.Properties(**PROPERTIES, headers=HEADERS | {"time": NOON}, delivery_mode=2)
    publishing.basic_publish("", queue, b"body", properties, mandatory=True)
    [part] = here.queue_slices(queue, 1)
    looked_at = [*here.queue_peek(queue), *here.queue_read(queue, part.first, part.end)[0]]
    assert len(looked_at) == 2
    got = here.basic_get(queue)
    assert got is not None
    got.nack(requeue=True)
    consumed = next(here.consume(queue, inactivity_timeout=SECONDS))
    for message in (*looked_at, got, consumed):
        assert (message.properties, message.body) == (expected, b"body")
        assert (message.message_id, message.persistent, message.routing_key) == ("m", True, queue)
        assert message.properties.headers is not None
        assert isinstance(message.properties.headers["decimal"], Decimal)
    consumed.ack()


def test_native_clients_read_headers_of_every_type(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    publishing.basic_publish("", queue, b"", Raw(LETTERS), mandatory=True)
    message = here.basic_get(queue, auto_ack=True)
    assert message is not None
    assert message.properties.headers == {
        "b": -1,
        "B": 255,
        "s": -1,
        "u": 65535,
        "I": 1,
        "i": 1,
        "l": 1,
        "L": 1,
        "f": 0.5,
        "d": 0.5,
        "D": Decimal("1.25"),
        "t": True,
        "S": "a",
        "x": b"a",
        "T": datetime.datetime.fromtimestamp(1, datetime.UTC),
        "A": [None, 257],
        "F": {"n": 1},
        "V": None,
        "\\xff": None,
    }


def test_a_message_without_properties_has_the_brokers_id_for_native_clients_alone(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    for _ in range(2):
        publishing.basic_publish("", queue, b"1", mandatory=True)
        here.basic_publish("", queue, b"2")
    assert taken(publishing, queue)[1].message_id is None
    assert taken(publishing, queue)[1].message_id is None
    first, second = [here.basic_get(queue, auto_ack=True) for _ in range(2)]
    assert first is not None
    assert second is not None
    assert first.properties == shardmq.Properties()
    assert first.message_id != second.message_id


@pytest.mark.usefixtures("reads_raw")
@pytest.mark.parametrize("raw", [LETTERS, b"\x00\x00", b"\x24\x07" + LETTERS[2:] + b"\x02\xff\xfe\x01c"])
def test_pika_gets_the_bytes_that_pika_sent(publishing: BlockingChannel, queue: str, raw: bytes) -> None:
    publishing.basic_publish("", queue, b"1", Raw(raw), mandatory=True)
    publishing.basic_publish("", queue, b"2", Raw(raw), mandatory=True)
    assert publishing.basic_get(queue, auto_ack=True)[1].raw == raw
    assert taken(publishing, queue)[1].raw == raw


def test_pika_reads_every_property_that_native_clients_send(
    channel: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    headers = HEADERS | {"time": NOON}
    properties = shardmq.Properties(**PROPERTIES, headers=headers)
    for _ in range(2):
        here.basic_publish("", queue, b"body", properties)
    for method, read, body in (channel.basic_get(queue, auto_ack=True), taken(channel, queue)):
        assert (body, method.routing_key) == (b"body", queue)
        assert read == pika.BasicProperties(**PROPERTIES, headers=headers, delivery_mode=2)
        assert str(read.headers["decimal"]) == "-12.50"


def test_native_headers_that_amqp_cannot_have_harm_nobody(
    channel: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    deep: Any = "bottom"
    for _ in range(250):
        deep = [deep]
    headers = {
        "x" * 300: 1,
        "huge": 2**64 - 1,
        "keys": {1: "a", "n" * 300: 2},
        "deep": deep,
        "old": "kept",
        "many": Decimal("1E+30"),
        "\u20ac" * 85: "longest",
    }
    here.basic_publish("", queue, b"1", shardmq.Properties(headers=headers, message_id="i" * 300, type="t" * 256))
    here.basic_publish("", queue, b"2", shardmq.Properties(headers={"all": ["x" * 100] * 1000}))
    here.basic_publish("", queue, b"3", shardmq.Properties(headers={str(each): {} for each in range(16_000)}))
    _, read, _ = taken(channel, queue)
    assert read.message_id is None
    assert read.type is None
    assert read.headers.pop("deep")
    assert read.headers == {
        "huge": str(2**64 - 1),
        "keys": {"1": "a"},
        "old": "kept",
        "many": "1E+30",
        "\u20ac" * 85: "longest",
        "x-message-id": "i" * 300,
    }
    assert taken(channel, queue)[1].headers == {"all": ["x" * 100] * 1000}
    assert 10_000 < len(taken(channel, queue)[1].headers) < 16_000


def test_messages_of_both_kinds_keep_their_order_for_both_kinds_of_clients(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    for number in range(40):
        body, message_id = str(number).encode(), str(number)
        if number // 5 % 2:
            publishing.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2, message_id=message_id))
        else:
            here.basic_publish("", queue, body, shardmq.Properties(message_id=message_id))
    read = [(message.body, message.message_id) for message in here.queue_peek(queue, count=40)]
    assert read == [(str(number).encode(), str(number)) for number in range(40)]
    came = []
    for method, properties, body in publishing.consume(queue, inactivity_timeout=SECONDS):
        assert method is not None
        came.append((body, properties.message_id))
        if len(came) == 40:
            break
    assert came == read


@pytest.mark.usefixtures("reads_raw")
def test_messages_that_came_back_to_a_queue_that_counts_say_how_often(
    publishing: BlockingChannel, here: shardmq.Channel
) -> None:
    publishing.queue_declare("counting", durable=True, arguments={"x-delivery-limit": 5})
    publishing.basic_publish("", "counting", b"1", Raw(LETTERS), mandatory=True)
    counted = b"\x10x-delivery-countl" + b"\x00" * 7
    seen = []
    for _ in range(3):
        method, properties, _ = publishing.basic_get("counting")
        seen.append(properties.raw)
        publishing.basic_nack(method.delivery_tag)
    assert seen == [
        LETTERS,
        b"\x20\x00" + wrapped(b"", EVERY_TYPE + counted + b"\x01"),
        b"\x20\x00" + wrapped(b"", EVERY_TYPE + counted + b"\x02"),
    ]
    publishing.basic_qos(prefetch_count=1)
    assert taken(publishing, "counting")[1].raw == b"\x20\x00" + wrapped(b"", EVERY_TYPE + counted + b"\x03")
    publishing.queue_purge("counting")
    here.basic_publish("", "counting", b"2")
    publishing.basic_nack(publishing.basic_get("counting")[0].delivery_tag)
    assert taken(publishing, "counting")[1].raw == b"\x30\x00" + wrapped(b"", counted + b"\x01") + b"\x02"
    publishing.queue_delete("counting")


@pytest.mark.usefixtures("reads_raw")
def test_what_nobody_wanted_returns_as_it_was_sent(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        returned: list[tuple[bytes, bytes]] = []
        channel.add_on_return_callback(lambda _, __, properties, body: returned.append((properties.raw, body)))
        channel.basic_publish("", "nowhere", b"back", Raw(LETTERS), mandatory=True)
        while not returned:
            connection.process_data_events(SECONDS)
    assert returned == [(LETTERS, b"back")]


def test_peeking_shows_what_pika_sent(
    publishing: BlockingChannel, broker: Broker, queue: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    properties = pika.BasicProperties(headers={"price": Decimal("1.5"), "at": NOON}, message_id="m", delivery_mode=2)
    publishing.basic_publish("", queue, b"seen", properties, mandatory=True)
    assert run(["queue", "peek", queue, "--json", "--url", broker.url]) == 0
    table = json.loads(capsysbinary.readouterr().out)
    assert (table["body"], table["message_id"], table["persistent"]) == ("seen", "m", True)
    assert table["properties"]["headers"] == {"price": "1.5", "at": "2026-11-21T12:00:00Z"}
    assert run(["queue", "peek", queue, "--url", broker.url]) == 0
    assert b'header price: "1.5"' in capsysbinary.readouterr().out


@pytest.mark.usefixtures("reads_raw")
def test_copies_go_where_cc_and_bcc_say_and_nobody_sees_bcc(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str
) -> None:
    for name in ("copied", "hidden"):
        publishing.queue_declare(name, exclusive=True)
    cc = b"\x02CC" + wrapped(b"A", wrapped(b"S", b"copied"))
    bcc = b"\x03BCC" + wrapped(b"A", wrapped(b"S", b"hidden"))
    raw = b"\x20\x00" + wrapped(b"", cc + bcc + EVERY_TYPE)
    publishing.basic_publish("", queue, b"1", Raw(raw), mandatory=True)
    without = b"\x20\x00" + wrapped(b"", cc + EVERY_TYPE)
    for name in (queue, "copied", "hidden"):
        _, properties, body = publishing.basic_get(name, auto_ack=True)
        assert (properties.raw, body) == (without, b"1")
    publishing.basic_publish("", "", b"2", pika.BasicProperties(headers={"BCC": [queue]}), mandatory=True)
    message = here.basic_get(queue, auto_ack=True)
    assert message is not None
    assert (message.body, message.properties.headers or {}) == (b"2", {})


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_what_is_no_text_among_routing_keys_is_passed_over(publishing: BlockingChannel, queue: str, name: str) -> None:
    properties = pika.BasicProperties(headers={name: [5, None, queue, b"\xff", [queue]]})
    publishing.basic_publish("", "", b"copied", properties, mandatory=True)
    assert publishing.basic_get(queue, auto_ack=True)[2] == b"copied"


def test_a_headers_exchange_looks_at_headers_of_every_type(publishing: BlockingChannel) -> None:
    publishing.exchange_declare("by-headers", "headers", auto_delete=True)
    wanted = {
        "kind": "late",
        "minutes": 5,
        "price": Decimal("1.5"),
        "raw": b"\xff",
        "at": NOON.replace(tzinfo=None),
        "is": True,
    }
    for name, value in wanted.items():
        publishing.queue_declare(f"by-{name}", exclusive=True)
        publishing.queue_bind(f"by-{name}", "by-headers", arguments={"x-match": "all", name: value})
    for name, value in wanted.items():
        properties = pika.BasicProperties(headers={name: value, "beside": 1})
        publishing.basic_publish("by-headers", "", name.encode(), properties, mandatory=True)
    for name in wanted:
        assert publishing.basic_get(f"by-{name}", auto_ack=True)[2] == name.encode()
        assert publishing.basic_get(f"by-{name}", auto_ack=True)[0] is None


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"hash-header": "user"}, lambda number: pika.BasicProperties(headers={"user": f"u{number % 7}"})),
        ({"hash-property": "message_id"}, lambda number: pika.BasicProperties(message_id=f"m{number % 7}")),
        ({"hash-property": "correlation_id"}, lambda number: pika.BasicProperties(correlation_id=f"c{number % 7}")),
        ({"hash-property": "timestamp"}, lambda number: pika.BasicProperties(timestamp=number % 7)),
    ],
    ids=["header", "message_id", "correlation_id", "timestamp"],
)
def test_a_consistent_hash_exchange_sends_what_has_the_same_value_to_the_same_queue(
    publishing: BlockingChannel, arguments: dict[str, str], properties: Any
) -> None:
    publishing.exchange_declare("hashed", "x-consistent-hash", arguments=arguments)
    names = [f"hashed-{number}" for number in range(3)]
    for name in names:
        publishing.queue_declare(name, exclusive=True)
        publishing.queue_bind(name, "hashed", "10")
    for number in range(70):
        publishing.basic_publish("hashed", "", str(number % 7).encode(), properties(number), mandatory=True)
    homes: dict[bytes, set[str]] = {}
    count = 0
    for name in names:
        while (came := publishing.basic_get(name, auto_ack=True))[0] is not None:
            homes.setdefault(came[2], set()).add(name)
            count += 1
        publishing.queue_delete(name)
    publishing.exchange_delete("hashed")
    assert count == 70
    assert all(len(names) == 1 for names in homes.values())


def test_neighbours_with_many_routing_keys_have_theirs_whoever_reads_them(
    channel: BlockingChannel, native: shardmq.Connection, queue: str
) -> None:
    channel.exchange_declare("mixing", "topic")
    channel.queue_declare("mixed", durable=True, arguments={"x-dead-letter-exchange": "mixing"})
    channel.queue_bind("mixed", "mixing", "first.#")
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(120):
        channel.basic_publish("mixing", f"first.{number % 7}", b"%d" % number, persistent)
    wanted = [(f"first.{number % 7}", b"%d" % number) for number in range(120)]
    channel.queue_unbind("mixed", "mixing", "first.#")
    channel.queue_bind(queue, "mixing", "first.#")
    got = [channel.basic_get("mixed", auto_ack=True) for _ in range(3)]
    channel.basic_qos(prefetch_count=50)
    taken = [each for _, each in zip(range(50), channel.consume("mixed"), strict=False)]
    assert [(method.routing_key, body) for method, _, body in got + taken] == wanted[:53]
    channel.basic_nack(taken[-1][0].delivery_tag, multiple=True, requeue=False)
    channel.cancel()
    with native.channel() as here:
        for name, expected in (("mixed", wanted[53:]), (queue, wanted[3:53])):
            messages = here.consume(name, auto_ack=True, inactivity_timeout=SECONDS)
            found = [each for _, each in zip(range(len(expected)), messages, strict=False)]
            messages.close()
            assert [(each.routing_key, each.body) for each in found] == expected
    channel.queue_delete("mixed")
    channel.exchange_delete("mixing")
