"""What is asked of the shard as a whole, and of its queues by number.

status.py  The state of the shard, as `shardmq status` and statistics show it.
queues.py  Statistics of queues: which come first, one by one, and all together.
ages.py    How long messages have waited: at the heads of queues, and with consumers.
"""
