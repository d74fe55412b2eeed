"""Queues to DataFrames."""
