"""Dead letters of messages that pika and native clients published, as both get them."""

import datetime
import time
from collections.abc import Iterator
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import shardmq
from shardmq.protocol.amqp.properties import decode
from shardmq.protocol.amqp.table_check import entries_of
from shardmq.protocol.amqp.tables import decode_value, wrapped
from tests.amqp.test_crossing import LETTERS, SECONDS, Raw
from tests.protocol.amqp.property_lists import EVERY_TYPE

DEATHS: Final = {
    "x-first-death-reason",
    "x-first-death-queue",
    "x-first-death-exchange",
    "x-last-death-reason",
    "x-last-death-queue",
    "x-last-death-exchange",
    "x-death",
}


@pytest.fixture(autouse=True)
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


@pytest.fixture
def dying(publishing: BlockingChannel, queue: str) -> Iterator[str]:
    """A queue whose dead letters go to `queue`."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    publishing.queue_declare("dying", durable=True, arguments=arguments)
    yield "dying"
    publishing.queue_delete("dying")


def arrived(channel: BlockingChannel, queue: str) -> tuple[bytes, bytes]:
    """A message's property list and body, once it is there."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return properties.raw, body
        channel.connection.process_data_events(0.02)
    raise AssertionError(f"nothing came to {queue}")


def rejected(channel: BlockingChannel, queue: str) -> None:
    """Reject the next message of a queue."""
    for method, _, _ in channel.consume(queue, inactivity_timeout=SECONDS):
        assert method is not None, f"nothing came to {queue}"
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.cancel()
        return


def types_in(raw: bytes, at: int) -> dict[str, str]:
    """The letters of a table's values, by name."""
    return {name.decode("latin-1"): chr(raw[start]) for name, _, start, _ in entries_of(raw, at)}


def check_death(raw: bytes, at: int, queue: str, count: int = 1) -> dict[str, Any]:
    """The newest death in a table of headers, in the types that RabbitMQ's clients cast its values to."""
    places = {name: start for name, _, start, _ in entries_of(raw, at)}
    start = places[b"x-death"]
    assert raw[start : start + 1] == b"A"
    _, _, first, _ = entries_of(raw, start + 1, has_names=False)[0]
    assert raw[first : first + 1] == b"F"
    types = types_in(raw, first + 1)
    assert types.pop("original-expiration", "S") == "S"
    assert types == {"count": "l", "reason": "S", "queue": "S", "time": "T", "exchange": "S", "routing-keys": "A"}
    death: dict[str, Any] = decode_value(raw, first)[0]
    assert (death["queue"], death["count"]) == (queue, count)
    age = datetime.datetime.now(datetime.UTC) - death["time"]
    assert abs(age) < datetime.timedelta(minutes=10)
    return death


def test_a_rejected_message_keeps_every_type(publishing: BlockingChannel, queue: str, dying: str) -> None:
    publishing.basic_publish("", dying, b"body", Raw(LETTERS), mandatory=True)
    rejected(publishing, dying)
    raw, body = arrived(publishing, queue)
    assert body == b"body"
    assert raw[:2] == b"\x20\x00"
    assert raw[6:].startswith(EVERY_TYPE)
    assert set(types_in(raw, 2)) - set(types_in(LETTERS, 2)) == DEATHS
    death = check_death(raw, 2, dying)
    assert (death["reason"], death["exchange"], death["routing-keys"]) == ("rejected", "", [dying])


def test_an_expired_message_loses_its_expiration_and_nothing_else(
    publishing: BlockingChannel, queue: str, dying: str
) -> None:
    raw = b"\x25\x04" + wrapped(b"", EVERY_TYPE) + b"\x02\xff\xfe" + b"\x011" + b"\x01c"
    publishing.basic_publish("", dying, b"body", Raw(raw), mandatory=True)
    after, body = arrived(publishing, queue)
    assert body == b"body"
    assert after[:2] == b"\x24\x04"
    assert after[6:].startswith(EVERY_TYPE)
    assert after.endswith(b"\x02\xff\xfe" + b"\x01c")
    death = check_death(after, 2, dying)
    assert (death["reason"], death["original-expiration"]) == ("expired", "1")


def test_native_clients_read_the_dead_letters_of_pika(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str, dying: str
) -> None:
    publishing.basic_publish("", dying, b"body", Raw(LETTERS), mandatory=True)
    rejected(publishing, dying)
    message = next(here.consume(queue, inactivity_timeout=SECONDS))
    message.ack()
    headers = message.properties.headers
    assert headers is not None
    assert {name: value for name, value in headers.items() if name not in DEATHS} == decode(LETTERS).headers
    [death] = headers["x-death"]
    assert (death["queue"], death["count"], death["routing-keys"]) == (dying, 1, [dying])
    assert isinstance(death["time"], datetime.datetime)


def test_pika_reads_the_dead_letters_of_native_clients(
    publishing: BlockingChannel, here: shardmq.Channel, queue: str, dying: str
) -> None:
    here.basic_publish("", dying, b"body", shardmq.Properties(headers={"mine": 1}, expiration="600000", app_id="a"))
    message = next(here.consume(dying, inactivity_timeout=SECONDS))
    message.nack(requeue=False)
    raw, body = arrived(publishing, queue)
    assert body == b"body"
    known = decode(raw)
    assert (known.app_id, known.expiration, known.delivery_mode) == ("a", None, 2)
    death = check_death(raw, 2, dying)
    assert (death["reason"], death["original-expiration"]) == ("rejected", "600000")


def test_deaths_in_turns_of_both_kinds_of_clients_are_one_history(
    publishing: BlockingChannel, here: shardmq.Channel
) -> None:
    for name, other in (("ping", "pong"), ("pong", "ping")):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        publishing.queue_declare(name, durable=True, arguments=arguments)
    publishing.basic_publish("", "ping", b"body", Raw(LETTERS), mandatory=True)
    for turn in range(1, 4):
        rejected(publishing, "ping")
        message = next(here.consume("pong", inactivity_timeout=SECONDS))
        headers = message.properties.headers
        assert headers is not None
        assert [(death["queue"], death["count"]) for death in headers["x-death"]] == [
            ("ping", turn),
            ("pong", turn - 1),
        ][: 1 if turn == 1 else 2]
        assert headers["x-first-death-queue"] == "ping"
        message.nack(requeue=False)
    raw, _ = arrived(publishing, "ping")
    assert raw[6:].startswith(EVERY_TYPE)
    check_death(raw, 2, "pong", count=3)
    for name in ("ping", "pong"):
        publishing.queue_delete(name)
