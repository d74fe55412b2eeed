"""An order pipeline: a topic exchange, workers, retries with back-off, dead letters, an idempotent producer.

python docs/examples/orders.py [URL]

                         orders (topic)
shop ──► order.eu.new ──►  │  order.eu.#  ──►  orders.europe ──► two workers ──► acknowledged
         order.us.new ──►  │  order.us.#  ──►  orders.america        │
                           │  order.#     ──►  orders.audit          └ came back 3 times ──► orders.dead
"""

import json
import sys
import threading

import shardmq

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
ORDERS = [{"id": number, "region": "eu" if number % 2 else "us", "items": number % 5} for number in range(1, 21)]
QUEUES = ("orders.europe", "orders.america", "orders.audit", "orders.dead")


def declare(channel: shardmq.Channel) -> None:
    """Declare the exchange and the queues. Declaring what is there already does nothing."""
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("orders.dead", durable=True)
    retried = {
        "x-delivery-limit": 3,  # a message that came back three times is dead-lettered
        "x-dead-letter-exchange": "",  # by the default exchange, which routes to the queue named by the key
        "x-dead-letter-routing-key": "orders.dead",
    }
    channel.queue_declare("orders.europe", durable=True, arguments=retried)
    channel.queue_declare("orders.america", durable=True, arguments=retried)
    channel.queue_declare("orders.audit", durable=True)
    channel.queue_bind("orders.europe", "orders", "order.eu.#")
    channel.queue_bind("orders.america", "orders", "order.us.#")
    channel.queue_bind("orders.audit", "orders", "order.#")


def publish(channel: shardmq.Channel) -> None:
    """Publish every order. A queue stores each sequence number of a producer once, however often it is published."""
    with channel.publisher(producer="shop-1") as publisher:  # leaving the block waits for every confirm
        for order in ORDERS:
            key, body = f"order.{order['region']}.new", json.dumps(order).encode()
            publisher.publish("orders", key, body, mandatory=True, sequence=order["id"])


def work(connection: shardmq.Connection, queue: str) -> None:
    """Handle the orders of a queue until no more come for two seconds."""
    with connection.channel() as channel:
        for message in channel.consume(queue, prefetch=10, inactivity_timeout=2.0):
            order = json.loads(message.body)
            try:
                ship(order)
            except ValueError as fault:
                delay_ms = 100 * 2**message.deliveries  # 100, 200, 400 ms
                print(f"{queue}: order {order['id']} failed ({fault}), try {message.deliveries + 1}")
                message.nack(delay_ms=delay_ms)
            else:
                print(f"{queue}: shipped order {order['id']}")
                message.ack()


def ship(order: dict[str, object]) -> None:
    """Ship an order; one without items cannot be."""
    if not order["items"]:
        raise ValueError("it has no items")


def main() -> None:
    """Run the pipeline once, and remove what it made."""
    with shardmq.connect(URL) as connection, connection.channel() as channel:
        declare(channel)
        publish(channel)
        publish(channel)  # as after a crash: the program does not know what it had published
        print(f"published {channel.queue_declare('orders.audit', passive=True).messages} orders, each once")

        workers = [threading.Thread(target=work, args=(connection, queue)) for queue in QUEUES[:2]]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        for message in channel.consume("orders.dead", inactivity_timeout=1.0):
            death = message.properties.headers["x-death"][0]  # type: ignore[index]  # dead letters have headers
            print(f"dead letter from {death['queue']}, {death['reason']}: {message.body.decode()}")
            message.ack()
        for queue in QUEUES:
            channel.queue_delete(queue)
        channel.exchange_delete("orders")


if __name__ == "__main__":
    main()
