"""The processes it dials.

shard.py           One shard: consumers, dead letters, alarms.
requests.py        Requests under way to a shard: what was asked, until when.
publish_window.py  Publishes on their way to a shard.
growing_batches.py  Record batches that grow until they are posted.
publish_columns.py  Publishes to many queues, which are posted as one message.
posted_publishes.py  Publishes that a shard has been sent, and what it says of them.
exchange_tally.py  What was published to one exchange.
publish_plan.py    How publishes go to a shard, and the record batches that they grow into.
settlements.py     Acks on their way to a shard.
fan_out.py         Confirms of a publish that went to several shards, joined.
common_deliveries.py  What a shard sends once for many consumers.
consumer.py        A consumer, as its shard link knows it.
command_pacing.py  Commands of one connection, on their way to the coordinator: so many at a time, the others wait
                   here in their order.
"""
