"""What a shard knows while it runs."""
