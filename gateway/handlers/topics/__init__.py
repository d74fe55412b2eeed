"""Topics and the groups that read them.

topics.py         Topics: permissions, then commands for the coordinator; what there is of one.
subscriptions.py  What the consumers of groups ask for.
"""
