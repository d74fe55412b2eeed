"""What a shard keeps on disk."""
