"""Searching a topic on the page, and tracing what was found."""

import gzip

import shardmq

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
    channel.topic_delete("searched")
