"""What commands share.

options.py          Types of parameters, and the options of commands that talk to a broker.
process_options.py  The options of the broker's processes: data directory, keys, watermarks, TLS, log.
numbers.py          Types of numbers within bounds, with errors that say what may be given.
values.py           Numbers as people read and write them: bytes, durations, counts.
connection.py       The connection of a command to a broker, and what is done over it.
contexts.py         Named brokers: their URLs with credentials, in a file that its user alone reads.
files.py            Files of the user that commands write.
completion.py       Completion of names, asked of the broker.
rows.py             Choosing rows and columns of a list: --sort, --filter and --columns.
tables.py           Tables: for people, for pipes, as JSON.
output.py           What commands say: JSON, sentences, questions, failures.
exit_codes.py       Exit codes.
"""
