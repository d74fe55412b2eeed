"""Commands that handle messages.

publish.py  `shardmq publish`.
consume.py  `shardmq consume`.
peek.py     `shardmq queue peek`.
move.py     `shardmq queue move`.
format.py   Messages as lines and as JSON.
"""
