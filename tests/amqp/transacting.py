"""What tests of transactions ask pika's channels."""

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    """What is ready in a queue, which is empty afterwards."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """Why a channel was closed when it was asked for something."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        call()
    return caught.value.reply_code, caught.value.reply_text
