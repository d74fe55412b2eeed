"""shardmq: a sharded message broker."""
