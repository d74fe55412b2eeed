"""What all connections share.

gateway.py        The topology replica, the links, the time, and what is due at the end of the pass.
routes.py         Routes by shard, remembered.
permissions.py    A user's permissions in a virtual host, applied to names.
direct_replies.py Answers that go from one client of this gateway to another, past the shard of their queue.
memberships.py    Members of consumer groups, and their way to the coordinator.
orders.py         What exists, in the order of lists, remembered.
traffic.py        What clients did, counted where it happens, and kept when they leave.
growth.py         Which connections hear that topics have got partitions.
primaries.py      Where shards and coordinator are, in a broker on several hosts.
alarms.py         Which alarms are on, and which connections they block.
message_loans.py  Room for large messages: lent to connections, message by message, within one limit for each and one
                  for all.
turns.py          Turns of messages that nothing sends to a partition of a topic.
passes.py         How much is in a pass: what takes long for one connection is done in pieces, one a pass, and others
                  are served in between; what many say that speak seldom is gathered.
"""
