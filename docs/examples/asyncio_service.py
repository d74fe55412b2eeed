"""An asyncio service: it consumes readings, keeps an average for each sensor, and publishes alarms.

    python docs/examples/asyncio_service.py [URL]

A real service runs until SIGTERM; this one ends when it has seen every reading.
"""

import asyncio
import json
import sys
from collections import defaultdict

import shardmq.aio

URL = sys.argv[1] if len(sys.argv) > 1 else None  # SHARDMQ_URL, or the broker of this machine
SENSORS, READINGS, LIMIT = 5, 40, 80


async def measure(channel: shardmq.aio.Channel) -> None:
    """Publish the readings of all sensors, and wait once, for all confirms together."""
    async with channel.publisher() as publisher:
        for number in range(READINGS):
            for sensor in range(SENSORS):
                reading = {"sensor": sensor, "value": (number * 7 + sensor * 13) % 101}
                await publisher.publish("", "readings", json.dumps(reading).encode())
    print(f"published {SENSORS * READINGS} readings")


async def serve(channel: shardmq.aio.Channel) -> None:
    """Handle readings one by one; acknowledge one when its alarm, if there is one, is confirmed."""
    seen: dict[int, list[int]] = defaultdict(list)
    async for message in channel.consume("readings", prefetch=100):
        reading = json.loads(message.body)
        seen[reading["sensor"]].append(reading["value"])
        if reading["value"] > LIMIT:
            await channel.basic_publish("", "alarms", message.body)
        message.ack()
        if sum(map(len, seen.values())) == SENSORS * READINGS:
            break
    for sensor, values in sorted(seen.items()):
        print(f"sensor {sensor}: {len(values)} readings, average {sum(values) / len(values):.1f}")


async def main() -> None:
    """Run publisher and service side by side, each on its own channel."""
    async with shardmq.aio.connect(URL) as connection:
        channel = await connection.channel()
        for queue in ("readings", "alarms"):
            await channel.queue_declare(queue, durable=True)
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(channel))
            tasks.create_task(measure(await connection.channel()))
        print(f"{await channel.queue_delete('alarms')} alarms were waiting")
        await channel.queue_delete("readings")


if __name__ == "__main__":
    asyncio.run(main())
