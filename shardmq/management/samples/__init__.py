"""Samples: what counters were, for charts and mean rates; all in memory, bounded.

series.py   The values of a few columns over time, thinner the older they are.
store.py    The series of the broker, and of those objects that are busy or looked at.
spans.py    Which samples a request asks for: `lengths_age`, `lengths_incr` and so on.
details.py  Samples from rows of the HTTP API, and samples added to them.
"""
