"""`shardmq spark`: whole jobs with Spark, each a function of `shardmq.spark` with a command line around it.

command.py      the group
session.py      a Spark session for one command: master, Python, quiet logs; and what all these commands are given
watching.py     how far Spark is, and what came of it, on the terminal
publish.py      `shardmq spark publish`
export.py       `shardmq spark export`
replay.py       `shardmq spark replay`
deadletters.py  `shardmq spark deadletters`
"""
