"""The message format: how messages travel and lie, without being unpacked.

batch_parts.py   Batches that many consumers get, as a gateway has them.
json_values.py   Values of arguments and headers as JSON has them.
keyed_records.py Records that have routing keys of their own: writing, reading, checking and taking them apart.
properties.py    A message's properties, by AMQP's names.
record.py        One message packed: writing, reading and checking it.
record_batch.py  Many records under one header, the unit of everything: flags, message ids, cutting points, joining.
"""
