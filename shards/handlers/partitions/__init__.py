"""What is asked of partitions alone.

pulls.py   Messages of partitions by their offsets, in portions; who is at the end may wait for more.
groups.py  Groups: members, offsets committed and reset.
group_settings.py  What a group's members say of it.
staged_offsets.py  Offsets that are committed with a transaction.
"""
