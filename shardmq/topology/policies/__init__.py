"""Policies: settings of all queues and exchanges whose names match.

keys.py      The settings there are, their checks, and how they meet arguments and operator policies.
matching.py  Which policies apply to a queue or an exchange, and what follows from them.
preview.py   What a policy would change, before it is set.
"""
