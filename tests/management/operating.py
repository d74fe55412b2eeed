"""What operators do on the page with queues: watch them, send single messages on, cancel what takes long."""

import gzip
import json
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from selenium.webdriver.common.by import By

import shardmq
from shardmq.cmd.main import run

from .window import Page

SLOW = {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1}
"""Milliseconds for each request: what goes piece by piece takes long enough to be cancelled."""

MANY = 20_000
"""Messages, ten pieces."""

ROW = "[...document.querySelectorAll('tr')].find((row) => row.textContent.includes('billing'))"
DRAWN = f"return {ROW}?.querySelector('.spark' + arguments[0] + ' path:last-child')?.getAttribute('d')"

"""The line of a small chart."""

ASKED = """const found = performance.getEntriesByType('resource').map((each) => each.name);
return found.filter((name) => name.includes('/samples/'))"""
"""Where samples were asked for."""

LATE = """window.quick = window.fetch;
window.fetch = async (place, options) => {
  const answer = await quick(place, options);
  if (String(place).endsWith('/redrive')) {
    document.dispatchEvent(new Event('visibilitychange'));
    await new Promise((go) => setTimeout(go, 1000));
  }
  return answer;
}"""
"""What is shown is asked for anew while the answer to a redrive is on its way, which takes a second."""


@contextmanager
def slowly(page: Page) -> Iterator[None]:
    """Each request takes a while."""
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", SLOW)
    try:
        yield
    finally:
        page.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**SLOW, "latency": 0})


def watch(page: Page, connection: shardmq.Connection) -> None:
    """See a queue's depth and rates drawn in the list, and how long the consumers of another take to acknowledge."""
    page.open("queues?name=billing")
    for kind in ("", ".in", ".out", ".acked"):
        page.until(lambda driver, kind=kind: (driver.execute_script(DRAWN, kind) or "").count("L") >= 1)
    assert page.driver.execute_script(ASKED)[-1].endswith("?name=billing")
    channel = connection.channel()
    channel.queue_declare("watched", durable=True)
    channel.basic_consume("watched", lambda message: message.ack(), prefetch=5)
    channel.basic_publish("", "watched", b"")
    page.open("queues/%2F/watched")
    page.until(lambda driver: " ms at most " in driver.find_element(By.CSS_SELECTOR, "[aria-label='Consumers']").text)
    assert "shardmq consumer list --queue watched --vhost /" in page.lines("main")
    assert not (found := page.violations()), found
    channel.queue_delete("watched")


def redrive_of_one_reason(page: Page, channel: shardmq.Channel) -> None:
    """Redrive the rejected messages of a queue that has others, after a dry run."""
    channel.queue_declare("grave", durable=True)
    deaths = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
    channel.queue_declare("work", durable=True, arguments=deaths)
    channel.queue_declare("brief", durable=True, arguments={**deaths, "x-message-ttl": 1})
    for number in range(5):
        channel.basic_publish("", "work" if number < 3 else "brief", b"%d" % number)
    for _ in range(3):
        message = channel.basic_get("work")
        assert message is not None
        message.nack(requeue=False)
    page.until(lambda _: channel.queue_declare("grave", passive=True).messages == 5)
    page.open("dead-letters")
    page.sees("expired")
    page.click("Redrive", "tr[contains(., 'rejected')]")
    page.click("What would happen?", "dialog[@open]")
    page.sees("It would redrive 3 messages: 3 to work.")
    page.shot("dead-letters")
    assert channel.queue_declare("grave", passive=True).messages == 5
    page.driver.execute_script(LATE)
    page.click("Redrive", "dialog[@open]")
    page.sees("Redrove 3 messages: 3 to work.")
    page.driver.execute_script("window.fetch = quick")
    assert channel.queue_declare("grave", passive=True).messages == 2
    assert channel.queue_declare("work", passive=True).messages == 3


def redrive_one(page: Page, channel: shardmq.Channel, url: str) -> None:
    """Find one dead letter among others, see where it would go, and send it there."""
    for name in ("one.grave", "one.work"):
        channel.queue_declare(name, durable=True)
    death = {"queue": "one.work", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["one.work"]}
    for number in range(3):
        properties = shardmq.Properties(headers={"x-death": [death], "number": number}, message_id=f"letter-{number}")
        channel.basic_publish("", "one.grave", b'{"n": %d}' % number, properties)
    page.open("dead-letters/%2F/one.grave")
    page.fill("json", "$.n == 1")
    page.click("Look")
    page.sees("1 shown, 3 looked at")
    page.find("details summary").click()
    page.click("Redrive this one")
    page.sees("It would go back to one.work, where it died, and leave one.grave. Nothing has happened yet.")
    assert not (found := page.violations()), found
    assert channel.queue_declare("one.grave", passive=True).messages == 3
    (line,) = page.lines("dialog[open]")
    page.click("Redrive", "dialog[@open]")
    page.sees("Redrove 1 message to one.work.")
    page.sees("It was sent on from here.")
    assert [message.message_id for message in channel.queue_peek("one.work", 0, 9)] == ["letter-1"]
    assert [message.message_id for message in channel.queue_peek("one.grave", 0, 9)] == ["letter-0", "letter-2"]
    assert run([*shlex.split(line.replace("letter-1", "letter-2"))[1:], "--url", url]) == 0
    assert [message.message_id for message in channel.queue_peek("one.grave", 0, 9)] == ["letter-0"]


def edit_and_publish(page: Page, channel: shardmq.Channel, url: str) -> None:
    """Publish a changed copy of a message, whose original stays; then another one, whose original goes."""
    channel.queue_declare("edited", durable=True)
    headers = {"tenant": "acme", "old": 1, "large": 2**60}
    properties = shardmq.Properties(content_type="application/json", headers=headers, priority=3)
    channel.basic_publish("", "edited", b'{"total": "12"}', properties)
    for is_last in (False, True):
        page.open("queues/%2F/edited")
        page.click("Look")
        page.sees('"12"')
        page.find("details summary").click()
        page.click("Edit and publish a copy")
        page.fill("body", '{"total": 12}', "dialog[open]")
        shown = json.loads(page.find("dialog[open] [name='headers']").get_attribute("value") or "")
        del shown["old"]
        page.fill("headers", json.dumps({**shown, "fixed": True}), "dialog[open]")
        assert not (found := page.violations()), found
        page.until(lambda _: '"total": 12}' in page.lines("dialog[open]")[0])
        (line,) = page.lines("dialog[open]")
        if is_last:
            page.find("dialog[open] input[name='remove']").click()
        page.click("Publish the copy", "dialog[@open]")
        page.sees("the original stays." if not is_last else "Published the copy and removed the original.")
    first, second = channel.queue_peek("edited", 0, 9)
    for copy in (first, second):
        assert bytes(copy.body) == b'{"total": 12}'
        assert copy.properties.headers == {"tenant": "acme", "large": 2**60, "fixed": True}
        assert (copy.properties.priority, copy.properties.content_type) == (3, "application/json")
    position = str(channel.queue_slices("edited", 1)[0].first)
    words = shlex.split(line)[1:]
    words[words.index("--message-id") + 1] = first.message_id
    assert run([*words[:-1], position, "--url", url]) == 0
    assert channel.queue_declare("edited", passive=True).messages == 3


def edit_packed(page: Page, channel: shardmq.Channel) -> None:
    """Change bodies that are compressed, or MessagePack, as text: they are published as they were packed."""
    channel.queue_declare("packed", durable=True)
    document = {"n": 1, "list": [1.5, -200, None, "é" * 40], "deep": {"big": 70_000}}
    pack, raw = msgspec.msgpack.encode, zlib.compressobj(wbits=-zlib.MAX_WBITS)
    bodies = (
        ("deflate", "", raw.compress(b'{"n": 1}') + raw.flush()),
        ("gzip", "application/msgpack", gzip.compress(pack(document))),
        ("utf-8", "", b'{"n": 1}'),
    )
    for encoding, kind, body in bodies:
        properties = shardmq.Properties(content_encoding=encoding or None, content_type=kind or None)
        channel.basic_publish("", "packed", body, properties)
        (read,) = _edited(page, channel, lambda text: text.replace('"n": 1', '"n": 2'), shown='"n": 1')
        copy = bytes(read.body)
        assert (read.properties.content_encoding or "") == encoding
        if encoding == "gzip":
            assert copy[:3] == body[:3]
            copy = gzip.decompress(copy)
        elif encoding == "deflate":
            copy = zlib.decompress(copy, -zlib.MAX_WBITS)
        if kind:
            assert copy == pack({**document, "n": 2})
        else:
            assert copy == b'{"n": 2}'
    for body, kind, said in (
        (msgspec.msgpack.encode({1: 1.0}), "application/msgpack", "It cannot be edited as text here."),
        (
            gzip.compress(b"x" * (1 << 20) + b"y"),
            "",
            "too large to edit here, or breaks off: the copy has the same.",
        ),
    ):
        channel.basic_publish("", "packed", body, shardmq.Properties(content_type=kind or None))
        (read,) = _edited(page, channel, None, said)
        assert bytes(read.body) == body
    channel.queue_delete("packed")


def _edited(
    page: Page, channel: shardmq.Channel, change: Callable[[str], str] | None, said: str = "", shown: str = ""
) -> list[shardmq.Message]:
    """The copy that takes the place of the only message, whose body was changed on the page."""
    page.open("overview")
    page.open("queues/%2F/packed")
    page.click("Look")
    page.find("details summary").click()
    page.until(lambda _: shown in page.text("details pre"))
    page.click("hex")
    page.until(lambda _: page.text("details pre").startswith("000000  "))
    page.click("Edit and publish a copy")
    if change is not None:
        field = page.find("dialog[open] [name='body']")
        page.fill("body", change(field.get_attribute("value") or ""), "dialog[open]")
    page.until(lambda _: said in page.text("dialog[open]"))
    page.find("dialog[open] input[name='remove']").click()
    page.click("Publish the copy", "dialog[@open]")
    page.sees("It was sent on from here.")
    found = channel.queue_peek("packed", 0, 9)
    channel.queue_purge("packed")
    return list(found)


def cancel_long_work(page: Page, channel: shardmq.Channel) -> None:
    """Begin a search for dead letters, a redrive and a move, and end each in the middle: the rest stays where it is."""
    for name in ("long.grave", "long.work", "long.aside"):
        channel.queue_declare(name, durable=True)
    death = {"queue": "long.work", "reason": "expired", "count": 1}
    with channel.publisher() as publisher:
        properties = shardmq.Properties(headers={"x-death": [death]})
        publisher.publish_many("", "long.grave", [b"%d" % number for number in range(MANY)], properties)

    def ready(queue: str) -> int:
        return channel.queue_declare(queue, passive=True).messages

    page.open("dead-letters")
    page.click("Redrive", "tr[contains(., 'long.work')]")
    with slowly(page):
        page.click("What would happen?", "dialog[@open]")
        page.click("Cancel", "dialog[@open]")
        page.sees("Cancelled.")
        assert "So far it would redrive" in page.text("dialog[open] .note")
        assert ready("long.grave") == MANY
        page.click("Redrive", "dialog[@open]")
        page.sees("Redrove 2,000 messages")
        page.click("Cancel", "dialog[@open]")
        page.sees("Cancelled; redrove ")
    redriven = ready("long.work")
    assert 2000 <= redriven < MANY
    assert ready("long.grave") == MANY - redriven
    page.open("queues/%2F/long.grave")
    page.click("Move messages")
    page.fill("to", "long.aside", "dialog[open]")
    with slowly(page):
        page.click("Move", "dialog[@open]")
        page.sees("Moved 2,000 of")
        page.click("Cancel", "dialog[@open]")
        page.sees("Cancelled; moved ")
    moved = ready("long.aside")
    assert 2000 <= moved < MANY - redriven
    assert ready("long.grave") == MANY - redriven - moved
