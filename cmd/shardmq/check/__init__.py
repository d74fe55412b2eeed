"""`shardmq check`: one question about a broker, answered with the exit codes of Nagios.

command.py   `shardmq check`: its options, and one check a function.
tls.py       How long the certificate of a broker's port is good for.
result.py    What a check found: status, sentence and measures.
findings.py  The rules of the management process, applied once.
formats.py   A result for Nagios, Prometheus, machines and people.
"""
