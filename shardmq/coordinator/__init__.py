"""The coordinator process: the authority on topology and transactions.

process.py          Start, signals.
replica_process.py  The same process where the coordinator has replicas on other hosts.
assembly.py         Options; the parts, put together on a store.
loop.py             One pass: receive, decide, commit, answer.
handlers/           What is asked of the coordinator.
links/              The processes it dials.
rules/              What a command changes, or why it is refused; pure functions of the topology.
state/              What the coordinator knows beside the topology.
storage/            What it keeps on disk.
"""
