"""`shardmq bench`.

command.py          The command line of the modes, and their figures.
settings.py         What is measured, and who publishes what to which queue.
trial.py            One measurement: its queues, its processes, their common start, their results.
producers.py        The producers' processes.
consumers.py        The consumers' processes.
results.py          Rates, percentiles, and the check that every message arrived once.
features.py         `bench features`.
scattered.py        `bench scattered`: many queues, fan-out, round trips, declarations, connections.
scattered_parts.py  What it measures.
disk.py             The number of fdatasync a second of the disk.
scale/              `bench queues` and `bench delays`: thousands of queues and connections, a million delayed messages.
footprint/          `bench footprint`: what a broker takes at rest, for large messages, and to start.
streams/            Streams beside RabbitMQ's and Redis's.
hosts/              `bench hosts`: several hosts, RabbitMQ's quorum queues beside them.
scaling/            `bench scaling`: what gateways and shards more bring.
watched/            `bench watched`: what open pages and scrapes cost.
compare/            Against RabbitMQ, on the same machine.
"""
