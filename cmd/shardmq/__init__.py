"""The `shardmq` program."""
