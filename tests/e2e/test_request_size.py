"""Requests larger than the broker takes are refused by the client, before anything is sent; the connection lives on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import shardmq
from shardmq import errors
from shardmq.client.core.validation import REQUEST_ROOM
from shardmq.cmd.run.broker import Broker
from shardmq.limits import REQUEST_BYTES_MAX

TAGS = [f"tag-{number}" for number in range(100_000)]
LARGE = "x" * REQUEST_BYTES_MAX

ATTEMPTS: dict[str, Callable[[Any], Any]] = {
    "pull": lambda channel: channel.pull("wide", 0, 0, tags=TAGS),
    "commit": lambda channel: channel.group_commit("wide", "g", dict.fromkeys(range(100_000), 0)),
    "declare": lambda channel: channel.queue_declare("q", arguments={"x-dead-letter-exchange": LARGE}),
    "member": lambda channel: channel.group_consumer("wide", "g", tags=TAGS),
    "reset": lambda channel: channel.group_reset("wide", "g", 0, list(range(100_000))),
}


def refused(fault: errors.ContentTooLarge) -> None:
    assert fault.code == errors.ReplyCode.CONTENT_TOO_LARGE
    assert f"the limit of such a request is {REQUEST_BYTES_MAX}" in fault.text
    assert not fault.is_from_broker


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_request_over_the_limit_is_not_sent(
    connection: shardmq.Connection, channel: shardmq.Channel, name: str
) -> None:
    channel.topic_declare("wide", 1)
    lost: list[object] = []
    connection.on_lost(lost.append)
    with pytest.raises(errors.ContentTooLarge) as caught:
        ATTEMPTS[name](channel)
    refused(caught.value)
    channel.basic_publish("", "wide-0", b"")
    assert channel.is_open
    assert not lost
    channel.topic_delete("wide")


def test_nor_by_an_asyncio_program(broker: Broker) -> None:
    async def attempts() -> None:
        async with await shardmq.aio.connect(broker.url) as connection:
            channel = await connection.channel()
            await channel.topic_declare("wide", 1)
            for attempt in ATTEMPTS.values():
                with pytest.raises(errors.ContentTooLarge) as caught:
                    await attempt(channel)
                refused(caught.value)
            assert channel.is_open
            await channel.topic_delete("wide")

    asyncio.run(attempts())


def test_nor_is_a_number_that_has_more_than_64_bits(connection: shardmq.Connection, channel: shardmq.Channel) -> None:
    for attempt in (
        lambda: channel.queue_declare("long", arguments={"x-max-length": 2**64}),
        lambda: connection.watermarks_put(10**20, None),
        lambda: connection.limits_put("user", "guest", {"max-connections": 10**20}),
    ):
        with pytest.raises(errors.InvalidRequest, match="whole number of more than 64 bits"):
            attempt()
    assert channel.queue_declare("long", arguments={"x-max-length": 2**40}).messages == 0
    channel.queue_delete("long")


def test_the_largest_request_reaches_the_broker(channel: shardmq.Channel) -> None:
    channel.topic_declare("wide", 1)
    fits, too_large = 1000, REQUEST_BYTES_MAX
    while too_large - fits > 1:  # bytes of the tag
        size = (fits + too_large) // 2
        try:
            channel.pull("wide", 0, 0, tags=["x" * size])
        except errors.ContentTooLarge:
            too_large = size
        else:
            fits = size
    assert fits > REQUEST_BYTES_MAX - REQUEST_ROOM - 100
    assert channel.is_open
    channel.topic_delete("wide")
