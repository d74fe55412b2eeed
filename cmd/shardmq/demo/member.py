"""A member of the demo's ordered group: `python -m shardmq.cmd.demo.member URL NAME`.

It counts flights by carrier. Its counts, and the offsets that it has read up to, are committed in one transaction: when
it is killed in between, neither is there, and another member counts those flights.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Final

from shardmq.client.sync.channel import Channel
from shardmq.client.sync.connection import connect
from shardmq.errors import PreconditionFailed

TOPIC: Final = "departures"
GROUP: Final = "ordered"
COUNTS: Final = "departures.counts"
"""The queue that gets what the members have counted."""

PULL: Final = 2_000
"""Flights of a transaction, at most."""


def consume(channel: Channel, name: str, turns: Iterator[int]) -> None:
    """Count what comes, until partitions are taken whose counts were not committed yet."""
    with channel.group_consumer(TOPIC, GROUP, start="earliest", auto_commit=False, pull=PULL) as consumer:
        while True:
            carriers = Counter(message.routing_key for message in consumer.poll())
            with channel.transaction(f"{name}-{next(turns)}", timeout_ms=60_000) as transaction:
                transaction.publish("", COUNTS, json.dumps({"member": name, "carriers": carriers}).encode())
                transaction.commit_offsets(consumer)


def main() -> None:
    """Count until somebody ends this process, or the broker."""
    url, name = sys.argv[1:]
    turns = count()
    with connect(url, recovery=None) as connection:
        while True:
            try:
                consume(connection.channel(), name, turns)
            except PreconditionFailed:
                continue  # another member has the partition now: it counts what this one did not commit


if __name__ == "__main__":
    main()
