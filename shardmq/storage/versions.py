"""Versions of the format of stores."""

from typing import Final

VERSION: Final = 15
"""The newest that this shardmq writes. 1: rows without checksums, but for bodies. 2: every row with one (checksums.py).
4: bodies that several queues have are stored once (shards/storage/schema.py). 7: segments of partitions have times. 8:
there are topics, groups that read them, and summaries of the tags in segments. 10: messages of a batch may differ in
key, and there are policies. 13: there are parameters of components. 15: a store may be a replica's (`ReplicaLayout`).
There is no 3, no 5 and no 9: their digits are one wrong bit away from 1, whose rows are believed without checksums. No
11, no 12 and no 14 either, one wrong bit away from 10.

A store is brought up to this version when it is opened; that of a replica when all hosts of its broker have it, so that
until then hosts of an earlier one have replicas, too. What a later version adds is written where `Engine.version` is
that one, and read everywhere."""

REPLICAS_SINCE: Final = 15
"""The first version of which a store may be a replica's."""

CHECKSUMS_SINCE: Final = 2
"""The first version in which every row has a checksum."""
