"""What consumers may hold, each of them and several together.

limits.py    How shards are told what consumers may hold, and when those of a channel without room are paused.
waiting.py   A limit of what several hold together, and what waits for room within it.
channel.py   What the consumers of a channel may hold.
"""
