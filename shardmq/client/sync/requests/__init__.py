"""The requests of threads that are answered by one answer, as parts of what a program has.

topology.py        Exchanges, queues and bindings: part of Channel.
topics.py          Topics: part of Channel.
reads.py           Looking at queues, and setting their messages aside: part of Channel.
consuming.py       Consumers, begun and cancelled: part of Channel.
offsets.py         Topics by the offsets of their messages: part of Channel.
policies.py        Policies, topic permissions, parameters: part of Connection.
administration.py  Virtual hosts, users, permissions: part of Connection.
statistics.py      What exists, page by page, with counters and rates: part of Connection.
"""
