"""Faults by a seed on three hosts, while clients of all kinds work: `make hosts-faults FAULTS=1000 SEED=n`.

    schedule ──► rounds of faults that overlap ──► nemesis ──► hosts, network, etcd, processes, disks, clocks
    load ──► clients, which note what they did and saw      ──► checks, once all is healed

A round is over when nothing is amiss any more, all groups are whole, and every client has gone on. The schedule depends
on the seed alone. Who leads just then decides which process "the primary" is, and is told.

schedule.py    What befalls whom, when and for how long.
nemesis.py     Does it, and takes it back.
network.py     Cuts, losses and delays that begin and end independently of one another.
clocks.py      Clocks of hosts that run at another rate.
clocks.c       Preloaded for that.
unsynced.py    What was written and not synced is lost when a host loses its power.
unsynced.c     Preloaded for that: keeps what was there before each write until that is synced.
preloading.py  Builds both.
operators.py   What operators do meanwhile: transfers, moves, drains, more shards, restarts, upgrades.
builds.py      Versions that hosts are upgraded to: next patches of this code, and next formats of stores.
watch.py       What etcd says of groups, for those who wait for it.
load.py        Clients, and what must be true of what they saw.
spark_jobs.py  A client that is Spark, and its program.
primaries/     Whether two primaries answered.
replicas.py    Whether the replicas of each group hold the same.
run.py         Rounds after rounds, then the checks.
__main__.py    The program.
"""
