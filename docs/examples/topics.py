"""A topic: readings of sensors in partitions, published with keys, and read from wherever one likes.

python docs/examples/topics.py [URL]

sensor-0 … sensor-9 ──► readings (4 partitions) ──► readers, each with a place of its own
"""

import datetime
import sys
from collections.abc import Iterator

import shardmq

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
TOPIC, PARTITIONS, SENSORS = "example-readings", 4, 10


def publish(channel: shardmq.Channel, numbers: range) -> None:
    """Publish readings. All of one key go to one partition, and stay in order there."""
    with channel.publisher() as publisher:  # leaving the block waits until all are on disk
        for number in numbers:
            kind = shardmq.Properties(headers={"x-stream-filter-value": "hot" if number % 7 == 0 else "cold"})
            publisher.publish(TOPIC, f"sensor-{number % SENSORS}", b"%d" % number, kind)


def read(
    channel: shardmq.Channel, partition: int, start: int | str | datetime.datetime, tags: str | None = None
) -> Iterator[shardmq.Message]:
    """Read a partition from an offset, a time, "earliest" or "latest" to its present end."""
    while True:
        pulled = channel.pull(TOPIC, partition, start, 500, tags=tags)
        yield from pulled
        if pulled.next == pulled.end:
            return
        start = pulled.next


def main() -> None:
    """Publish, read in several ways, and remove the topic."""
    with shardmq.connect(URL) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, PARTITIONS, retention_ms=7 * 86_400_000)
        publish(channel, range(1000))

        for partition in range(PARTITIONS):
            latest: dict[str, int] = {}
            for message in read(channel, partition, "earliest"):
                assert latest.get(message.routing_key, -1) < int(message.body), "a key's messages are in order"
                latest[message.routing_key] = int(message.body)
            print(f"partition {partition} has {', '.join(sorted(latest)) or 'no sensor'}")

        hot = sum(len(list(read(channel, partition, "earliest", "hot"))) for partition in range(PARTITIONS))
        print(f"{hot} readings are hot")

        middle = next(read(channel, 0, 150))
        when = datetime.datetime.fromtimestamp(middle.timestamp_ms / 1000, datetime.UTC)
        first = next(read(channel, 0, when))  # the first that came then or later
        print(f"offset {middle.offset} came at {when:%H:%M:%S.%f}, and so did those from offset {first.offset} on")

        follower = channel.reader(TOPIC, 0, "latest", inactivity_timeout=10.0)  # is sent what comes from now on
        publish(channel, range(1000, 1100))
        message = next(follower)
        print(f"{message.routing_key} went on with {int(message.body)}, at offset {message.offset}")
        channel.topic_delete(TOPIC)


if __name__ == "__main__":
    main()
