"""The whole broker as its users meet it: real processes, real sockets, the SDK.

traffic.py           publishing and taking numbers, looking at counts, waiting for what must come
test_exchanges.py    routing, bindings, declaring the same and something else
test_queues.py       counts, purge, delete, message ids
test_consuming.py    order, return, turns, prefetch, auto-ack, cancel
test_gateways.py     two gateways, one truth
test_restarts.py     what is there after a clean stop and after kill -9 of everything
test_deaths.py       what clients see when one process dies
test_collection.py   space taken by what is acked is given back
"""
