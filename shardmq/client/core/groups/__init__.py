"""Consumers of groups, without waiting.

membership.py  A consumer of `group_consumer`: what came for it, and which partitions it has.
changes.py     What it hears of its partitions, and how it ends.
handed_out.py  What it has handed out, until that is settled.
plain.py       A consumer of `consume` or `basic_consume` that is a member: what it has let go of.
"""
