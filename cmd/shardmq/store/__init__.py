"""`shardmq store`: what is done to stores while no broker runs on them.

command.py  the group
adopt.py    `shardmq store adopt`: a coordinator's store made anew from what the shards have
looking.py  a look through all stores of a data directory, with its progress, and what it found as a table
check.py    `shardmq store check`: is everything what was written?
repair.py   `shardmq store repair`: what is damaged is taken out, or made anew
compact.py  `shardmq store compact`: files without their free pages
"""
