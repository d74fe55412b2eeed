"""Remote procedure calls: a server that answers requests, and a client that waits for each answer.

    python docs/examples/rpc.py [URL]

`Channel.call` fills in where the answer goes (reply_to) and a number to know it by (correlation_id).
"""

import sys

import shardmq

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
REQUESTS = "rpc.fibonacci"


def fibonacci(number: int) -> int:
    """The number at that place of the Fibonacci sequence."""
    previous, current = 0, 1
    for _ in range(number):
        previous, current = current, previous + current
    return previous


def serve(channel: shardmq.Channel) -> str:
    """Answer requests on one of the connection's threads; returns the consumer's tag."""

    def answer(request: shardmq.Message) -> None:
        asked = request.properties
        result = str(fibonacci(int(request.body))).encode()
        reply = shardmq.Properties(correlation_id=asked.correlation_id, delivery_mode=1)
        channel.basic_publish("", asked.reply_to or "", result, reply)
        request.ack()  # after the reply: a server that dies before it leaves the request to another one

    return channel.basic_consume(REQUESTS, answer, prefetch=10)


def main() -> None:
    """Serve and call from one program; they may as well be two."""
    with shardmq.connect(URL) as server, shardmq.connect(URL) as client:
        requests = server.channel()
        requests.queue_declare(REQUESTS, durable=True)
        consumer = serve(requests)

        with client.channel() as channel:
            for number in (1, 10, 50):
                answer = channel.call("", REQUESTS, str(number).encode(), timeout=10)
                print(f"fibonacci({number}) = {int(answer.body)}")

        requests.basic_cancel(consumer)
        requests.queue_delete(REQUESTS)


if __name__ == "__main__":
    main()
