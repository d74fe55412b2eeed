"""Closed stores, looked through and repaired."""
