"""Searching a topic on the page, and tracing what was found."""

import gzip
import shlex

import shardmq

from .browser import Browser
from .window import Page


def search_a_topic(page: Page, channel: shardmq.Channel) -> None:
    """Begin a long search, cancel it, find one message in another partition, and ask where it is."""
    channel.topic_declare("searched", 2)
    with channel.publisher() as publisher:
        publisher.publish_many(
            "", "searched-0", [b'{"n": %d, "list": [[1], [2]]}' % number for number in range(100_000)]
        )
        body = gzip.compress(b'{"n": -1, "state": "here"}')
        publisher.publish("", "searched-1", body, shardmq.Properties(message_id="a/b", content_encoding="gzip"))
    page.open("topics/%2F/searched")
    page.fill("json", "$..list[*][0] == 3")
    page.click("Look")
    page.find("progress")
    page.sees("to go")
    page.click("Cancel")
    page.sees("; cancelled")
    page.fill("json", "$.state == here")
    page.fill("text", "here")
    page.click("Look")
    page.sees("1 shown, 100,001 looked at")
    page.find("details summary").click()
    page.sees("decompressed")
    page.open("trace/%2F/a%2Fb")
    page.sees("stream: it keeps what was consumed")
    page.sees("searched-1")
    (line,) = page.lines("main")
    with Browser(page.url) as admin:
        trace = admin.get(shlex.split(line)[-1].partition("/api")[2])
        assert [row["queue"] for row in trace["held"]] == ["searched-1"]
    channel.topic_delete("searched")


def look_with_all_filters(page: Page) -> None:
    """Fill in what a message is found by, of twenty; then a time that none came after; then nothing."""
    wanted = {"key": "us.*", "header": "tenant=acme", "regex": '"order": [34]', "json": "$.order > 31", "start": "10"}
    for name, value in {"text": "", **wanted}.items():
        page.fill(name, value)
    page.click("Look")
    page.sees("6 shown, 10 looked at")
    since = page.find("input[name='since']")
    page.driver.execute_script("arguments[0].value = '2100-01-01T00:00:00'", since)
    page.click("Look")
    page.sees("None of the")
    page.driver.execute_script("arguments[0].value = ''", since)
    for name in wanted:
        page.fill(name, "")
    page.click("Look")
    page.sees("20 shown, 20 looked at")
