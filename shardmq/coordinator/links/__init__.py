"""The processes it dials.

asked.py  What a shard was asked and has not answered.
shard.py  A shard: which queues it was assigned, is to give up, which transactions it is to prepare and follow.
"""
