"""What clients ask, whatever their protocol, as operations of the native protocol.

topology.py        Exchanges, queues and bindings: permissions, then commands for the coordinator.
transactions.py    Begin, seal, commit, abort.
atomic_commit.py   Publishes and settlements of one channel, committed together.
reads.py           Slices, reads, reservations and searches.
administration.py  Virtual hosts, users, permissions, limits, definitions.
policies.py        Policies, operator policies, topic permissions, parameters: who may change them, and
                   what they would change.
lists.py           Lists of what exists, and the status.
client_lists.py    Lists of connections, channels and consumers, here and at other gateways.
streams.py         What the consumers of streams ask for.
status.py          The broker's state, asked of every process.
dead_letters.py    Dead letters that shards hand over: published to their queue's dead-letter exchange.
death_history.py   What is written into dead letters: x-death, the first and the last death.
replies.py         Answers put together: several questions with one answer, many commands with one outcome.
statistics/        Lists in pages, with counters and rates.
topics/            Topics and the groups that read them.
"""
