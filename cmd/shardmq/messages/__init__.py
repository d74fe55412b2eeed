"""Commands that handle messages.

publish.py        `shardmq publish`.
consume.py        `shardmq consume`.
peek.py           `shardmq queue peek`.
search.py         `shardmq queue search` and `shardmq topic search`.
move.py           `shardmq queue move`.
republish.py      `shardmq queue republish`.
shovel.py         `shardmq shovel`.
tap.py            `shardmq tap`.
dead_letters.py   `shardmq dead-letters`: list, redrive.
trace.py          `shardmq trace`.
following.py      Copies of messages as they come, for `tap` and `trace follow`.
stdout_reader.py  Who reads stdout: whether they have taken what was written.
format.py         Messages as lines and as JSON.
"""
