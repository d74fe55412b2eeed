"""DataFrames to queues."""
