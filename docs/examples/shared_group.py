"""A shared group: any number of workers on a topic, with retries that wait, and dead letters.

python docs/examples/shared_group.py [URL]

                         ┌─► worker 1 ─┐
mails (2 partitions) ────┼─► …         ├──► sent; what fails comes again after 50, 100, 200 ms, ─► mails.dead
                         └─► worker 6 ─┘    and is a dead letter when it came back three times
"""

import sys
import threading

import shardmq

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
TOPIC, GROUP, DEAD = "example-mails", "senders", "example-mails.dead"
MAILS, WORKERS = 60, 6

sent: list[int] = []


def send(mail: int, attempt: int) -> None:
    """Send a mail; some servers answer at the second attempt only, and some addresses do not exist."""
    if mail % 20 == 0:
        raise ConnectionError("no such address")
    if mail % 10 == 5 and attempt == 0:
        raise ConnectionError("the server is busy")
    sent.append(mail)


def work(channel: shardmq.Channel, name: str) -> None:
    """Send mails until none come for a second. More workers than partitions are fine."""
    with (
        channel,
        channel.group_consumer(
            TOPIC,
            GROUP,
            shared=True,
            start="earliest",
            auto_commit=False,
            prefetch=5,
            delivery_limit=3,
            dead_letter_exchange="",
            dead_letter_routing_key=DEAD,
            inactivity_timeout=1.0,
        ) as consumer,
    ):
        for message in consumer:
            try:
                send(int(message.body), message.deliveries)
            except ConnectionError as fault:
                print(f"{name}: mail {int(message.body)} failed ({fault}), try {message.deliveries + 1}\n", end="")
                message.nack(delay_ms=50 * 2**message.deliveries)
            else:
                message.ack()


def main() -> None:
    """Run the workers once, and remove what they made."""
    with shardmq.connect(URL) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, 2)
        channel.queue_declare(DEAD, durable=True)
        with channel.publisher() as publisher:
            for mail in range(MAILS):
                publisher.publish(TOPIC, f"recipient-{mail}", b"%d" % mail)

        workers = [
            threading.Thread(target=work, args=(connection.channel(), f"worker {number}"))
            for number in range(1, WORKERS + 1)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        print(f"{len(set(sent))} of {MAILS} mails were sent")
        for message in channel.consume(DEAD, inactivity_timeout=1.0):
            death = message.properties.headers["x-death"][0]  # type: ignore[index]  # dead letters have headers
            print(f"dead letter, {death['reason']}: mail {int(message.body)}")
            message.ack()
        channel.topic_delete(TOPIC)
        channel.queue_delete(DEAD)


if __name__ == "__main__":
    main()
