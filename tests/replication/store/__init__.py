"""Replicas' stores.

following.py    A follower in a process of its own.
pair.py         A primary of two, for the processes of a broker.
stores.py       Stores on disk and in memory, and edits as their owners make them.
"""
