"""The shard process: owns its queues completely, and their store. One writer, no locks.

process.py           Start, signals.
options.py           Its options.
replica_process.py   The same process where the shard has replicas on other hosts.
loop.py              One pass: receive, apply, deliver, commit, answer.
answers.py           What leaves at the end of a pass, and when.
pass_size.py         How much has come in a pass.
early_deliveries.py  Which deliveries may leave before the commit.
check/               Looks through stores that no process has open: what is damaged, and what a repair would do.
handlers/            What is asked of a shard.
failed_reads.py      Requests that only read, and fail as nobody expected.
consumers/           Consumers and their credit, in turn.
queues/              Queues in memory: which messages are ready, unacked or held, in which order.
topics/              Partitions: logs that many read, each from its offset.
segments/            Segments: the unit of storing, what is in memory of them, and how they are cut.
state/               What a shard knows while it runs.
storage/             What a shard keeps on disk.
"""
