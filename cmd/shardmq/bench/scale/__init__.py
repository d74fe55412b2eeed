"""Thousands of queues and connections, a million delayed messages.

connections.py         `bench queues`: thousands of queues and connections.
connection_holders.py  The processes that hold those connections.
delays.py              `bench delays`: how punctual delayed messages are.
rows.py                What of it goes into a file of results.
"""
