"""Commands about topics and the groups that read them.

topic.py  `shardmq topic`.
group.py  `shardmq group`.
"""
