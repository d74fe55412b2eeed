"""What is asked of a shard."""
