"""Whole jobs on topics.

export.py      A topic to Parquet, by date; run again, what came since.
checkpoint.py  Where the exports of a topic to a folder have their checkpoint.
replay.py      Messages of a topic back to exchanges, at a pace.
"""
