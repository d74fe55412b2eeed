"""Spans of what the broker does with messages whose trace is sampled; nothing of it runs unless it is asked for.

traced_link.py  A link to a shard that notes what passes it: route, store, queued, deliver, settle, dead-letter.
exporter.py     Where spans go: a receiver of OTLP over HTTP.
contexts.py     The contexts of traces in a record batch.
"""
