"""What a program sees, whichever front it uses.

url.py             shardmq://user:password@host:port/vhost, several of them, and with TLS.
tls.py             TLS contexts, and what TLS errors mean.
message.py         Messages and batches as consumers get them.
topics.py          Where to read topics from, and what a pull brought.
results.py         The broker's answers, checked.
recovery.py        How a lost connection is won back, and when which address is tried.
hooks.py           What a program wants to hear of its connection.
metrics.py         Counts for a program's metrics.
handler_errors.py  What becomes of a message whose handler raised.
statistics.py      What a list is asked for.
defaults.py        Windows, prefetch, timeouts and limits of patience; constants alone.
returns.py         Mandatory messages that no queue took.
opening.py         What is awaited, or entered with `async with`.
"""
