"""`shardmq bench`.

command.py             The command line, its table and its JSON.
settings.py            What is measured, and who publishes what to which queue.
trial.py               One measurement: queues, processes, a common start, results.
producers.py           The producers' processes.
consumers.py           The consumers' processes.
results.py             Rates, percentiles, and that every message came once.
features.py            `bench features`.
delays.py              `bench delays`.
connections.py         `bench queues`: thousands of queues and connections.
connection_holders.py  The processes that hold those connections.
disk.py                How many fdatasync a second the disk does.
compare/               Against RabbitMQ, on the same machine.
"""
