"""The processes it dials.

asked.py             What a shard was asked and has not answered.
gateway_sessions.py  The gateways that have sessions with a shard, and those whose sessions it is to end.
shard.py             A shard: which queues it was assigned, is to give up.
transactions.py      A shard's part in transactions: which it is to prepare and to follow.
"""
