"""RabbitMQ's clients while hosts of their broker die: the programs of docs/operations/failover.md are run.

loopback.py      Three hosts of one machine, each at a loopback address of its own.
programs.py      The programs of the page, as processes, and what they say.
test_clients.py  Hosts die; nothing confirmed is lost, and all clients go on.
"""
