"""Topics and the groups that read them.

topics.py         Topics: permissions, then commands for the coordinator; what there is of one.
partitions.py     Which queues a topic consists of, for those who may read it.
pulls.py          Messages by their offsets, in portions.
groups.py         The offsets of consumer groups: committed, looked at, reset, forgotten.
subscriptions.py  What the consumers of groups ask for.
"""
