"""Publishes on their way to a shard.

publish_window.py    Publishes on their way to one shard: what gathers, and what is sent.
growing_batches.py   Record batches that grow until they are posted.
publish_plan.py      How publishes go to a shard, and the record batches that they grow into.
publish_columns.py   Publishes to many queues, which are posted as one message.
forwarding.py        Messages that go to a consumer on their way to the shard.
posted_publishes.py  Publishes that a shard has been sent, and what it says of them.
fan_out.py           Confirms of a publish that went to several shards, joined.
exchange_tally.py    What was published to one exchange.
"""
