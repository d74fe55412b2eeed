"""Consumers of groups: one of the client's, made of one for each partition that it has.

consumers.py     The consumers of a channel that are members of groups.
subscription.py  What a client asks for: topic, group, kind, where a new group begins.
beginning.py     Where a group begins in partitions that it has not read: as it is told, or with the first message.
channel.py       What a member needs of the channel that it is on.
member.py        A member of a group: its partitions, what they deliver and may hold together, leaving.
ordered.py       A member of an ordered group: it has the partitions that the coordinator assigns to it.
timed.py         A member of an ordered group that has a time to acknowledge, and leaves when that is over.
shared.py        A member of a shared group: it has all partitions.
unproven.py      Acks of members of shared groups of which nobody knows yet whether they are on disk.
permits.py       How a member of a shared group splits its prefetch over its partitions.
partition.py     One partition of a member, and when one that cannot be read is tried again.
"""
