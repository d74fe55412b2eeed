"""`shardmq demo`.

demo.py      The command: two acts.
report.py    What it prints in the end.
flights.py   The rows it sends, and what pandas counts of them; the first act: a topic exchange and queues.
topic.py     The second act: a topic, three groups, Spark.
ordered.py   The ordered group of the second act, as its parent sees it.
member.py    A member of that group, a process of its own.
spark.py     Spark, which counts the topic as a stream, as its parent sees it.
stream.py    That Spark, a process of its own.
"""
