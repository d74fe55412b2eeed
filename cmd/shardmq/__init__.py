"""The `shardmq` program: commands parse, build and run.

main.py    The list of commands, and how each of them may end.
admin/     Commands about what exists, one noun a file.
bench/     `shardmq bench`.
check/     `shardmq check`.
contexts/  `shardmq context`.
demo/      `shardmq demo`.
hosts/     Commands about the hosts of a broker.
messages/  Commands that handle messages.
run/       Commands that run the broker.
spark/     `shardmq spark`.
store/     `shardmq store`, `backup` and `restore`: the files of a broker that is stopped, and their copies.
top/       `shardmq top`.
topics/    Commands about topics and the groups that read them.
terminal/  What commands share.
"""
