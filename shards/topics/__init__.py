"""Partitions: logs whose messages stay, read again from any offset by any number of readers.

partition.py       One partition: a queue whose messages are numbered and kept until retention drops them.
kept_messages.py   What consumers do with a queue's messages, of which a partition does nothing.
cursor.py          Where one reader is in a partition, and which messages it wants.
shared_reading.py  What several readers of a partition get, put together once for all of them.
tag_filter.py      Which messages a reader wants, by their tags.
retention.py       How much of a partition is kept: by age and by size.
group_cursor.py  A group's cursor in a partition: what it has acknowledged, whose the partition is.
fresh_messages.py  What a group has not been delivered, from an offset on.
group_letters.py  Dead letters of a group.
group_deliveries.py  What a group's members have of a partition, and what they get next.
"""
