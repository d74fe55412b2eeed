"""The processes it dials.

shard.py              One shard: consumers, dead letters, alarms.
requests.py           Requests under way to a shard: what was asked, until when.
publishes/            Publishes on their way to a shard.
settlements.py        What becomes of deliveries, on its way to their shard: acks, and what returns.
common_deliveries.py  What a shard sends once for many consumers.
consumer.py           A consumer, as its shard link knows it.
consumer_timeouts.py  Which consumers have messages return by themselves, as policies come and go.
command_pacing.py     Commands of one connection, on their way to the coordinator: so many at a time, the others wait
                      here in their order.
"""
