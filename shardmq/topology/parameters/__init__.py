"""Parameters: what components of the broker are given while it runs.

collection.py  All of them, and what components report.
shovel.py      What a shovel is given: its settings, their checks, and how they are shown.
"""
