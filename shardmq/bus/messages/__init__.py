"""What the processes say to one another: typed, tagged structs, packed with msgpack.

    gateway → shard         ToShard          shard → gateway, coordinator    FromShard
    coordinator → shard     ToShard
    gateway → coordinator   ToCoordinator    coordinator → gateway           FromCoordinator

A request travels in a Call, whose `request` number is the asking side's; its Answer or Refusal has the same.
`consumer` numbers are the gateway's, one for each consumer (or basic.get client) on a link. Ranges of sequence numbers
are half-open, [first, end).

base.py           the base of bus messages; opening a link, requests, answers, refusals, inspection
shard.py          to and from shards
reads.py          looking at a queue, reading it in parallel, reserving its messages
coordinator.py    to and from the coordinator
stores.py         whose a store is, and backups
"""
