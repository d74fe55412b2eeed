"""Searches of queues and topics: on the broker, page by page, without a trace, and without holding others up."""

import asyncio
import gzip
import threading
import time

import pytest

import shardmq
from shardmq import errors
from shardmq.cmd.run.broker import Broker

from .traffic import numbers, publish_all, until

Filters = shardmq.SearchFilters


def all_of(channel: shardmq.Channel, queue: str, filters: Filters, partition: int = 0, count: int = 100) -> list[bytes]:
    """What all pages of a search find."""
    found: list[bytes] = []
    following: int | None = 0
    while following is not None:
        page = channel.messages_search(queue, filters, following, count, partition)
        found += [message.body for message in page.messages]
        following = page.next
    return found


def test_messages_are_found_page_by_page_and_stay(channel: shardmq.Channel, queue: str) -> None:
    with channel.publisher() as publisher:
        for number in range(3000):
            headers = {"tenant": "acme" if number % 10 == 7 else "other"}
            publisher.publish("", queue, b'{"n": %d}' % number, shardmq.Properties(headers=headers))
    first = channel.messages_search(queue, Filters(headers=(("tenant", "acme"),)), count=5)
    assert [message.body for message in first.messages] == [b'{"n": %d}' % number for number in (7, 17, 27, 37, 47)]
    assert [message.position for message in first.messages] == [7, 17, 27, 37, 47]
    assert (first.looked_at, first.next, first.left, first.partitions) == (48, 48, 2952, 1)
    assert len(all_of(channel, queue, Filters(headers=(("tenant", "acme"),)))) == 300
    assert all_of(channel, queue, Filters(json=("$.n >= 2998",)), count=1) == [b'{"n": 2998}', b'{"n": 2999}']
    assert all_of(channel, queue, Filters(regex=r"\b2\d99\b")) == [b'{"n": %d}' % n for n in range(2099, 3000, 100)]
    assert all_of(channel, queue, Filters(key="other*")) == []
    held = channel.basic_get(queue)
    assert held is not None
    assert (held.body, held.redelivered) == (b'{"n": 0}', False)
    assert all_of(channel, queue, Filters(text=": 0}")) == [], "what is with a consumer is not ready"
    held.ack()
    (known,) = channel.messages_search(queue, Filters(text=": 1}")).messages
    assert all_of(channel, queue, Filters(message_id=known.message_id)) == [b'{"n": 1}']


def test_partitions_are_searched_from_an_offset_or_a_time(channel: shardmq.Channel) -> None:
    channel.topic_declare("searched", 2)
    publish_all(channel, "searched-1", numbers(0, 20))
    later = time.time_ns() // 1_000_000 + 1
    until(lambda: time.time_ns() // 1_000_000 > later, "a moment")
    channel.basic_publish("", "searched-1", gzip.compress(b"late"), shardmq.Properties(content_encoding="gzip"))
    page = channel.messages_search("searched", partition=1, first=18)
    assert [message.body for message in page.messages[:2]] == numbers(18, 20)
    assert (page.looked_at, page.next, page.partitions) == (3, None, 2)
    (found,) = channel.messages_search("searched", Filters(since_ms=later), partition=1).messages
    assert (found.position, gzip.decompress(found.body)) == (20, b"late")
    assert len(all_of(channel, "searched", Filters(text="late"), partition=1)) == 1
    assert all_of(channel, "searched", Filters(), partition=0) == []
    with pytest.raises(errors.NotFound, match="no partition 2"):
        channel.messages_search("searched", partition=2)
    channel.topic_delete("searched")


def test_what_cannot_be_searched_is_refused(channel: shardmq.Channel, queue: str, broker: Broker) -> None:
    publish_all(channel, queue, [b"a" * 60 + b"b"] * 5)
    with pytest.raises(errors.NotFound):
        channel.messages_search("nowhere")
    for filters, text in (
        (Filters(regex="("), "no regular expression"),
        (Filters(regex="(a|aa)+$"), "takes more than 5 ms"),
        (Filters(json=("n",)), "begins with no path"),
        (Filters(json="$.n"), r"SearchFilters: .*json"),  # a connection must outlive it
        (Filters(headers=("tenant",)), r"SearchFilters: .*headers"),
        (Filters(text=b"a"), r"SearchFilters: .*text"),
    ):
        with pytest.raises(errors.InvalidRequest, match=text):
            channel.messages_search(queue, filters)
    assert len(all_of(channel, queue, Filters())) == 5

    async def found() -> int:
        async with await shardmq.aio.connect(broker.url) as connection:
            other = await connection.channel()
            return len((await other.messages_search(queue, Filters(text="b"))).messages)

    assert asyncio.run(found()) == 5


def test_a_search_over_much_comes_in_pages_and_gives_way(channel: shardmq.Channel, queue: str, broker: Broker) -> None:
    bodies = [b'{"n": %d, "text": "%s"}' % (number, b"x" * 100) for number in range(150_000)]
    publish_all(channel, queue, bodies)
    pages: list[shardmq.SearchPage] = []

    def search() -> None:
        following: int | None = 0
        while following is not None:
            pages.append(channel.messages_search(queue, Filters(json=("$.n == -1",)), following))
            following = pages[-1].next

    with shardmq.connect(broker.url) as connection, connection.channel() as other:
        other.queue_declare("beside", durable=True)
        searching = threading.Thread(target=search)
        searching.start()
        confirmed = 0
        while searching.is_alive():
            other.basic_publish("", "beside", b"x", mandatory=True)
            confirmed += 1
        searching.join()
        other.queue_delete("beside")
    assert not any(page.messages for page in pages)
    assert pages[0].looked_at + pages[0].left == len(bodies)
    assert sum(page.looked_at for page in pages) == len(bodies)
    assert len(pages) > 1
    assert confirmed > 20
