"""`shardmq context`: named brokers, one of them selected.

command.py  `shardmq context`: add, list, show, select, previous, remove, validate.
"""
