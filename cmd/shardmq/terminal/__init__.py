"""What commands share.

options.py     Options that several commands have.
values.py      What options' values mean, and how numbers are shown: bytes, shares of memory, durations, NAME=VALUE.
connection.py  --url and --json, and the connection to a broker.
tables.py      Lists as tables.
exit_codes.py  Exit codes.
"""
