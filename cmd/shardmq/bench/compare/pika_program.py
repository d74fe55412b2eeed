"""The Python program of `bench compare`: it publishes with pika.

python -m shardmq.cmd.bench.compare.pika_program confirmed|unconfirmed PORT QUEUE MESSAGES BODY_BYTES
"""

import json
import sys
import time
from typing import Final

MODES: Final = ("confirmed", "unconfirmed")
"""With a confirm for each message before the next, or without confirms until the queue has all messages."""

LOOK_SECONDS: Final = 0.005
ARRIVE_SECONDS: Final = 60.0
"""Unconfirmed messages must be in their queue after this time."""


def publish(mode: str, port: int, queue: str, messages: int, size: int) -> float:
    """Publish persistent messages to a durable queue; returns messages a second.

    Raises:
        SystemExit: the queue does not have as many messages as were published.
        pika.exceptions.AMQPError: one was refused, or the connection was lost.
    """
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    if mode == "confirmed":
        channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2)
    body = b"x" * size
    started_at = time.perf_counter()
    for _ in range(messages):
        channel.basic_publish("", queue, body, properties)
    deadline = time.monotonic() + ARRIVE_SECONDS
    while (found := channel.queue_declare(queue, passive=True).method.message_count) != messages:
        if mode == "confirmed" or found > messages or time.monotonic() > deadline:
            sys.exit(f"of {messages} messages published with pika the queue has {found}")
        time.sleep(LOOK_SECONDS)
    seconds = time.perf_counter() - started_at
    channel.queue_delete(queue)
    connection.close()
    return messages / seconds


def main() -> None:
    """Publish, and print one line of JSON."""
    mode, port, queue, messages, size = sys.argv[1:]
    rate = publish(mode, int(port), queue, int(messages), int(size))
    print(json.dumps({"messages": int(messages), "publish_msgs_per_s": round(rate, 1)}))


if __name__ == "__main__":
    main()
