"""Whole jobs on topics.

export.py  A topic to Parquet, by date; run again, what came since.
replay.py  Messages of a topic back to exchanges, at a pace.
"""
