"""The processes it dials.

shard.py  A shard: which queues it was assigned, is to give up, which transactions it is to prepare and follow.
"""
