"""`shardmq store`, `backup` and `restore`: the files of a broker that is stopped, and their copies.

adopt.py     `shardmq store adopt`: rebuilds a lost coordinator's store from the shards'.
backup.py    `shardmq backup` and `shardmq restore`: all stores of a broker, copied while it runs, and put back.
check.py     `shardmq store check`: reads all that is stored, and shows what is damaged.
command.py   The group of the commands that work on stores.
compact.py   `shardmq store compact`: gives the free pages of files back to the disk.
progress.py  Reads all stores of a data directory, and prints what it found.
repair.py    `shardmq store repair`: removes or rebuilds what is damaged, and keeps the rest.
"""
