"""Queues in memory."""
