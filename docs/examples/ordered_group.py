"""An ordered group: members share the partitions of a topic, and commit what they have handled.

python docs/examples/ordered_group.py [URL]

                            ┌─► anna ─┐
orders (4 partitions) ──────┤         ├──► invoices, each customer's in order
                            └─► bert ─┘    bert fails half-way, and anna goes on where he committed
"""

import sys
import threading

import shardmq

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
TOPIC, GROUP = "example-orders", "billing"
ORDERS, CUSTOMERS = 400, 20

invoices: dict[int, str] = {}
"""By order, who wrote its invoice: what a real program has in its database."""

is_bert_working = threading.Event()


class OutOfPaperError(Exception):
    """What goes wrong in this example."""


def work(name: str) -> None:
    """Write invoices until no more orders come for three seconds; commit when some are written."""
    with (
        shardmq.connect(URL) as connection,
        connection.channel() as channel,
        channel.group_consumer(
            TOPIC,
            GROUP,
            start="earliest",
            auto_commit=False,
            pull=20,
            on_assigned=lambda partitions: print(f"{name} got partitions {[number for number, _ in partitions]}"),
            on_revoked=lambda partitions, is_lost: print(f"{name} gave up partitions {partitions} (lost: {is_lost})"),
        ) as consumer,
    ):
        written = 0
        while orders := consumer.poll(timeout=3.0):
            for order in orders:
                number = int(order.body)
                if name == "bert" and written >= 30:
                    raise OutOfPaperError(f"{name} stops at order {number}")
                invoices[number] = name  # an order that comes again gets no second one
                written += 1
            consumer.commit()  # on disk when it returns: these orders do not come again
            if name == "bert":
                is_bert_working.set()


def bert() -> None:
    """A member that fails. What he had not committed goes to the others."""
    try:
        work("bert")
    except OutOfPaperError as fault:
        print(fault)


def main() -> None:
    """Run the group once, and remove what it made."""
    with shardmq.connect(URL) as connection, connection.channel() as channel:
        channel.topic_declare(TOPIC, 4)
        with channel.publisher() as publisher:
            for number in range(ORDERS):
                publisher.publish(TOPIC, f"customer-{number % CUSTOMERS}", b"%d" % number)

        first = threading.Thread(target=bert)
        first.start()
        is_bert_working.wait(30)
        second = threading.Thread(target=work, args=("anna",))
        second.start()
        first.join()
        second.join()

        print(f"{len(invoices)} of {ORDERS} orders have an invoice")
        for row in channel.group_offsets(TOPIC, GROUP):
            print(f"partition {row['partition']}: offset {row['offset']}, {row['lag']} behind")
        channel.topic_delete(TOPIC)


if __name__ == "__main__":
    main()
