"""Topics and the groups that read them.

topics.py         Topics: permissions, then commands for the coordinator; what there is of one.
partitions.py     Which queues a topic consists of, for those who may read it.
questions.py      Questions to the shards of many partitions: some hundred are under way at a time.
pulls.py          Messages by their offsets, in portions.
groups.py         The offsets of consumer groups: committed, looked at, reset, forgotten.
group_lists.py    The list of consumer groups: a row for each, over all partitions of its topic.
subscriptions.py  What the consumers of groups ask for.
"""
