"""Which messages a search finds: pure functions of a message's key, properties and body.

filters.py     What is looked for, as it travels.
matching.py    Filters made ready, and record batches looked through with them.
deaths.py      What messages died of, and dead letters by that.
bounded.py     A regular expression of a caller, tried on many texts in a bounded time.
bodies.py      Bodies as they are looked into: unpacked, and read as JSON or MessagePack.
json_paths.py  Conditions on values inside a document, such as `$.order.total > 100`.
"""
