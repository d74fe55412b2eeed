"""Replicas' stores.

stores.py       Stores on disk and in memory, and edits as their owners make them.
"""
