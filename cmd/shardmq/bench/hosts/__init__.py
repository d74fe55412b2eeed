"""shardmq on three hosts, and RabbitMQ's quorum queues on three others: network namespaces of this machine.

command.py          `bench hosts`.
rows.py             What is measured, and the goals.
session.py          One run: loads in turns, faults in turns, and what is measured of shardmq alone.
measure.py          The figures over the turns.
contestants.py      The brokers, each on hosts of its own, and the loads that are put on them.
faults.py           Hosts and processes that are killed, frozen or cut off, and how long nothing is confirmed then.
copies.py           Replicas that come back, or are made anew.
traffic.py          Publishers and consumers as processes, and what they have seen confirmed.
traffic_program.py  What they run.
replicated.py       A shardmq on several hosts.
quorum.py           A RabbitMQ on several hosts.
machines/           Hosts of their own on one machine, and etcd.
"""
