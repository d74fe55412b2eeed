"""AMQP 0-9-1.

frames.py          Bytes in: a frame reader that yields events, neighbours of a kind together.
publish_frames.py  Neighbouring publishes, read together.
events.py          What the reader yields: publishes, acks, methods, heartbeats, errors; and the frame constants.
encoder.py         Bytes out: methods, contents, deliveries by the batch.
properties.py      Property lists: decoded and encoded.
property_facts.py  What the broker has to know of a property list, read without decoding it.
property_edits.py  Changes to a property list without decoding all of it.
stream_offsets.py  The header x-stream-offset of messages that are read from streams.
tables.py          Field tables and their value types: decoded and encoded.
table_check.py     Field tables checked without decoding them, and where their entries are.
field_types.py     The types of values in field tables: letters, sizes, errors.
records.py         Records made of AMQP messages, packed and unpacked by the batch.
errors.py          Reply codes and texts, and whether they end the channel or the connection.
methods/           The methods.
"""
