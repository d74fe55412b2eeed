"""`shardmq store`, `backup` and `restore`: the files of a broker that is stopped, and their copies.

adopt.py     `shardmq store adopt`: a coordinator's store made anew from what the shards have recorded.
backup.py    `shardmq backup` and `shardmq restore`: all stores of a broker, copied while it runs, and put back.
check.py     `shardmq store check`: is everything that is stored what was written?
command.py   The group of the commands that work on stores.
compact.py   `shardmq store compact`: files without their free pages.
progress.py  A look through all stores of a data directory, which no process may have open meanwhile; and what it
             found.
repair.py    `shardmq store repair`: what is damaged is taken out, or made anew; everything else stays.
"""
