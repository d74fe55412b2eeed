"""Consume, transform, produce: what is read and what is made of it are committed together, exactly once.

python docs/examples/transform.py [URL]

trades (3 partitions) ──► a program that fails now and then ──► totals (a queue)
                  └── its offsets ──────┴── one transaction ──────┘
"""

import json
import secrets
import sys
from collections import Counter

import shardmq
from shardmq.errors import ShardmqError

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
TOPIC, GROUP, TOTALS = "example-trades", "summing", "example-totals"
TRADES, SHARES = 3000, ("ACME", "INIT", "HOOL", "PIED", "UMBR")


class PowerCutError(Exception):
    """What goes wrong in this example."""


def transform(channel: shardmq.Channel, run: str, fails_at: int) -> int:
    """Sum up trades until no more come; in that transaction the program fails. Returns how many it made."""
    turn = 0
    with channel.group_consumer(TOPIC, GROUP, start="earliest", auto_commit=False, pull=200) as consumer:
        while trades := consumer.poll(timeout=2.0):
            totals: Counter[str] = Counter()
            for trade in trades:
                totals[trade.routing_key] += int(trade.body)
            turn += 1
            with channel.transaction(f"{run}-{turn}") as transaction:  # a name is used once
                transaction.publish("", TOTALS, json.dumps(totals).encode())
                transaction.commit_offsets(consumer)
                if turn == fails_at:
                    raise PowerCutError  # neither the totals nor the offsets are there
    return turn


def main() -> None:
    """Run the program until it succeeds, compare the sums, and remove what it made."""
    with shardmq.connect(URL) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, 3)
        channel.queue_declare(TOTALS, durable=True)
        expected: Counter[str] = Counter()
        with channel.publisher() as publisher:
            for number in range(TRADES):
                share = SHARES[number % len(SHARES)]
                publisher.publish(TOPIC, share, b"%d" % number)
                expected[share] += number

        for fails_at in (2, 3, 0):
            try:
                with connection.channel() as own:
                    turns = transform(own, secrets.token_hex(8), fails_at)
                print(f"done, after {turns} more transactions")
            except (PowerCutError, ShardmqError) as fault:
                print(f"failed in transaction {fails_at}: {fault!r}; what it had read comes again")

        found: Counter[str] = Counter()
        for message in channel.consume(TOTALS, inactivity_timeout=1.0):
            found.update(json.loads(message.body))
            message.ack()
        print("each trade counts once" if found == expected else f"the totals are wrong: {found}, not {expected}")
        channel.topic_delete(TOPIC)
        channel.queue_delete(TOTALS)


if __name__ == "__main__":
    main()
