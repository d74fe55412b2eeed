"""`shardmq demo`.

demo.py     The command.
flights.py  The rows it sends, and what pandas counts of them.
"""
