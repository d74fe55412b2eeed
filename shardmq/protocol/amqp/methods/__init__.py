"""The methods.

fields.py       The base of methods, and the domains of their fields.
connection.py   Classes connection, channel and access.
topology.py     Classes exchange and queue.
basic.py        Class basic.
transaction.py  Classes tx and confirm.
codec.py        The table of all methods: encode and decode.
"""
