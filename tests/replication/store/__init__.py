"""Replicas' stores.

stores.py  A room for stores, and edits as their owners make them.
"""
