"""`shardmq spark`.

command.py       The group.
session.py       A Spark session for one command.
progress.py      How far Spark is, and what came of it, on the terminal.
publish.py       `shardmq spark publish`.
export.py        `shardmq spark export`.
replay.py        `shardmq spark replay`.
dead_letters.py  `shardmq spark deadletters`.
"""
