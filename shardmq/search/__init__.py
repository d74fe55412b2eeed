"""Which messages a search finds: pure functions of a message's key, properties and body.

filters.py     What is looked for, as it travels.
matching.py    Filters made ready, and record batches looked through with them.
bodies.py      Bodies as they are looked into: unpacked, and read as JSON or MessagePack.
json_paths.py  Conditions on values inside a document, such as `$.order.total > 100`.
"""
