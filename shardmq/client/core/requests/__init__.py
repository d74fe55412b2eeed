"""The requests that are answered by an Ok, as values: checked, ready to be sent, and what their answer becomes.

request.py         What they have in common.
topology.py        Exchanges, queues and bindings.
topics.py          Topics.
reads.py           Looking at a queue, and reserving its messages.
consuming.py       What begins and changes consumers; calls that wait for an answer.
offsets.py         Topics by the offsets of their messages.
groups.py          The offsets of groups.
transactions.py    Transactions.
steps.py           What a transaction's steps ask for and wait for, and how long they insist.
policies.py        Policies, topic permissions and parameters.
administration.py  Virtual hosts, users, permissions, backups and definitions.
statistics.py      Lists page by page, with counters and rates.
"""
