"""What the coordinator knows beside the topology.

pending_command.py  A command under way.
transactions.py     Transaction numbers, committed names, deadlines.
"""
