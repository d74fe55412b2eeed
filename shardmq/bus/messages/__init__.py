"""The messages between processes: typed, tagged structs, packed with msgpack.

    gateway → shard         ToShard          shard → gateway, coordinator    FromShard
    coordinator → shard     ToShard
    gateway → coordinator   ToCoordinator    coordinator → gateway           FromCoordinator

A request travels in a Call under a number of the asking side, `request`; its Answer or Refusal has the same number.
`consumer` numbers are the gateway's, one for each consumer (or basic.get client) on a link. Ranges of sequence numbers
are half-open, [first, end).

base.py           The base of bus messages; opening a link, requests, answers, refusals, inspection.
shard.py          To and from shards.
columns.py        Many publishes, deliveries or acks of one pass as one message.
deliveries.py     Deliveries of which many have the same messages.
reads.py          Looking at a queue, reading it in parallel, reserving its messages.
streams.py        What is read of streams.
groups.py         Consumer groups of a partition: what their members ask for, their cursors.
transactions.py   What becomes of a transaction on a shard.
dead_letters.py   Dead letters on their way from a shard to a gateway.
coordinator.py    To and from the coordinator.
membership.py     Who is in which consumer group, and which partitions each member has.
statistics.py     Statistics of queues.
stores.py         Which broker a store belongs to, and backups.
"""
