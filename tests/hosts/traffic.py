"""A client of a broker on several hosts: `traffic.py publish URL` until SIGTERM, `traffic.py drain URL`.

`publish` numbers messages from 0 on, sends each to one of four queues, and prints each number once it is confirmed.
What is refused, as its shard has no primary just then, is sent once more, and printed as such.
`drain` takes all messages of the queues and prints their numbers.
"""

import signal
import sys
import time

import shardmq
import shardmq.errors

QUEUES = ("apples", "pears", "plums", "cherries")
IDLE_SECONDS = 0.3
AGAIN_SECONDS = 0.05


def publish(url: str) -> None:
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    with shardmq.connect(url, timeout=30.0) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        number = 0
        while not stopping:
            try:
                channel.basic_publish("", QUEUES[number % len(QUEUES)], b"%d" % number)
            except shardmq.errors.PublishRefused as refusal:
                print("again", number, refusal, flush=True)
                time.sleep(AGAIN_SECONDS)
                continue
            print(number, time.time(), flush=True)
            number += 1
    print("done", flush=True)


def drain(url: str) -> None:
    with shardmq.connect(url, timeout=30.0) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            for message in channel.consume(queue, inactivity_timeout=IDLE_SECONDS):
                print(bytes(message.body).decode(), queue, int(message.redelivered), flush=True)
                message.ack()
    print("done", flush=True)


if __name__ == "__main__":
    {"publish": publish, "drain": drain}[sys.argv[1]](sys.argv[2])
