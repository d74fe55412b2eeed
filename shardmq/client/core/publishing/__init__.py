"""Single publishes until they are sent as batches.

builder.py    Messages that share exchange, routing key and properties.
mixed.py      Messages whose properties alternate.
keyed.py      Messages with routing keys of their own.
pairs.py      Many of them at once.
collector.py  What a publisher collects: side by side for queues by their names, in order for all else.
sent.py       The batches that were sent, and what has become of them.
"""
