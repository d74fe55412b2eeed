"""Who gets a queue's messages: consumers with their credit, in turn, and how each is served.

consumer.py      Consumers and their credit.
serving.py       How a consumer is served: what fits into its window, and what needs a permit.
forwarded_numbers.py  By which numbers a consumer knows what its gateway forwarded to it.
alone.py         A consumer that is alone with a plain queue.
round_robin.py   Consumers of a queue, in turn.
readers.py       Readers of a partition, each from its cursor, and its groups.
group_members.py A group's consumers of one partition.
member_turns.py  The members of a group, in turn; those of a shared one are asked to take more.
ack_latency.py   How long a consumer takes to acknowledge.
ack_timeouts.py  Deliveries that are unsettled for too long.
"""
