"""Consumers of groups, without waiting.

membership.py  A consumer of `group_consumer`: what came for it, and which partitions it has.
changes.py     What it hears of its partitions, and how it ends.
handed_out.py  What it has handed out, until that is settled.
nacked.py      Where in the topic that lies of it which it has nacked.
plain.py       A consumer of `consume` or `basic_consume` that is a member: what it has let go of.
"""
